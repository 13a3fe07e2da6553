package txn_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// agreeable answers every mutation with success at once: the benchmark measures only the
// coordinator.
type agreeable struct {
	*txntest.Process
	last  atomic.Uint64
	value []byte
}

func (a *agreeable) Send(_ context.Context, _ *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	switch req.Op.(type) {
	case *pb.TabletRequest_Get:
		found := &pb.ReadResult{Found: true, Value: a.value}
		return &pb.TabletResponse{
			Result: &pb.TabletResponse_Get{
				Get: &pb.GetResponse{Results: []*pb.ReadResult{found}, At: a.last.Add(1)},
			},
		}, nil
	default:
		res := &pb.MutationResult{CommitTs: a.last.Add(1)}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: res}}, nil
	}
}

func (a *agreeable) Timestamps(_ context.Context, count int) (mvcc.Timestamp, int, error) {
	return mvcc.Timestamp(a.last.Add(uint64(count))) - mvcc.Timestamp(count) + 1, count, nil
}

// BenchmarkRun measures transactions of one and of two cells, with 1 and 64 callers.
func BenchmarkRun(b *testing.B) {
	for _, cells := range []int{1, 2} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("cells=%d/callers=%d", cells, callers), func(b *testing.B) {
				benchmarkRun(b, cells, callers)
			})
		}
	}
}

func benchmarkRun(b *testing.B, cells, callers int) {
	cluster := txntest.New()
	cluster.AddTable("t", "m")
	a := &agreeable{Process: cluster.Process(1, 1)}
	a.last.Store(uint64(mvcc.TimestampAt(time.Now().UnixMilli())))
	c := txn.NewClient(a, txn.Config{})
	defer c.Close()
	rows := []string{"a", "z"}[:cells]
	value := make([]byte, 100)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				_, err := c.Run(context.Background(), txn.Options{},
					func(_ context.Context, t *txn.Txn) error {
						for _, row := range rows {
							t.Set(key(row), value)
						}
						return nil
					})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkReadOne measures transactions that read one cell.
func BenchmarkReadOne(b *testing.B) {
	cluster := txntest.New()
	cluster.AddTable("t", "m")
	a := &agreeable{Process: cluster.Process(1, 1)}
	a.last.Store(uint64(mvcc.TimestampAt(time.Now().UnixMilli())))
	c := txn.NewClient(a, txn.Config{})
	defer c.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Run(context.Background(), txn.Options{},
				func(ctx context.Context, t *txn.Txn) error {
					_, _, err := t.Get(ctx, key("a"))
					return err
				}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
