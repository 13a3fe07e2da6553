package observer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/test/workload"
)

func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestExactCounting: with one change per row, a strong observer's counter equals the number of
// rows, whatever finds the dirty cells and however often (§2.4: exactly one transaction commits per
// change).
func TestExactCounting(t *testing.T) {
	for name, hints := range map[string]scanner.Hints{"on": scanner.HintsOn,
		"off": scanner.HintsOff, "twice": scanner.HintsTwice} {
		for _, noLocks := range []bool{false, true} {
			for i, shards := range []int{1, 64, 1, 64} {
				batch := []int{0, 0, 16, 16}[i]
				t.Run(fmt.Sprintf("hints=%s/lockd=%t/counters=%d/batch=%d", name, !noLocks, shards, batch),
					func(t *testing.T) {
						work := workload.Counting{Rows: 300, Shards: shards, Batch: batch}
						n := notifytest.Start(t, notifytest.NodeConfig{
							Cluster: notifytest.NewCluster(), Hints: hints, NoLocks: noLocks,
							Register: func(r *percolator.Registry) { work.Register(r) },
							Scanner: func(c *scanner.Config) {
								c.MinAge = -1
							}, // scans and hints find the same rows
						})
						count(t, n, work)
					})
			}
		}
	}
}

func count(t *testing.T, n *notifytest.Node, work workload.Counting) {
	t.Helper()
	ctx := bounded(t, 60*time.Second)
	if err := work.Load(ctx, n.DB); err != nil {
		t.Fatal(err)
	}
	if err := work.Check(ctx, n.DB); err != nil {
		t.Error(err)
	}
	s := n.Stats("counting")
	t.Logf("%+v p50 %f s", s, s.Latency.Quantile(0.5))
	if s.Commits != uint64(work.Rows) || s.Failures != 0 || s.Parked != 0 {
		t.Errorf("%d commits, %d failures, %d parked of %d rows", s.Commits, s.Failures, s.Parked,
			work.Rows)
	}
}

// TestExactCountingOverFaults: lost requests, lost replies and repeated operations do not change
// the count. The next run settles unknown outcomes by the acknowledgment.
func TestExactCountingOverFaults(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cluster := notifytest.NewCluster()
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 1))
			work := workload.Counting{Rows: 150, Shards: 8, Batch: int(seed/4) * 20}
			n := notifytest.Start(t, notifytest.NodeConfig{
				Cluster: cluster, Hints: scanner.Hints(seed % 3), NoLocks: seed%2 == 0,
				Register: func(r *percolator.Registry) { work.Register(r) },
				Scanner:  func(c *scanner.Config) { c.MinAge = -1 },
				Faults: func(*pb.TabletRequest) txntest.Fault {
					mu.Lock()
					defer mu.Unlock()
					switch rng.IntN(40) {
					case 0:
						return txntest.Fault{NotSent: true}
					case 1:
						return txntest.Fault{Lost: true}
					case 2:
						return txntest.Fault{Reply: true}
					case 3:
						return txntest.Fault{Twice: true}
					}
					return txntest.Fault{}
				},
			})
			client := txn.NewClient(cluster.Process(7, 1), txn.Config{})
			defer func() { _ = client.Close() }()
			db := handle.NewDB(client)
			ctx := bounded(t, 60*time.Second)
			if err := work.Load(ctx, db); err != nil {
				t.Fatal(err)
			}
			if err := work.Check(ctx, db); err != nil {
				t.Error(err)
			}
			t.Logf("%+v", n.Stats("counting"))
			if s := n.Stats("counting"); s.Failures != 0 {
				t.Errorf("%d runs count as failed", s.Failures)
			}
		})
	}
}

// TestTwoWorkersOneChange holds two workers inside runs for the same change, so that both have
// found it dirty: one commits, the other conflicts on the acknowledgment, runs again and finds it
// clean. An acknowledgment written outside the transaction would count twice.
func TestTwoWorkersOneChange(t *testing.T) {
	cluster := notifytest.NewCluster()
	both := newBarrier(2)
	work := workload.Counting{Rows: 40, Inside: func(ctx context.Context, row string,
		_ *percolator.Tx) error {
		return both.meet(ctx, row)
	}}
	register := func(r *percolator.Registry) { work.Register(r, percolator.Concurrency(64)) }
	tune := func(c *observer.Config) { c.Workers = 64 }
	one := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, ID: 1, NoLocks: true, Hints: scanner.HintsOff, Register: register,
		Observer: tune,
	})
	two := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, ID: 2, NoLocks: true, Hints: scanner.HintsOff, Register: register,
		Observer: tune,
	})
	ctx := bounded(t, 60*time.Second)
	if err := work.Load(ctx, one.DB); err != nil {
		t.Fatal(err)
	}
	if err := work.Check(ctx, two.DB); err != nil {
		t.Fatal(err)
	}
	one.WaitIdle(t)
	two.WaitIdle(t)
	if got := one.Stats("counting").Commits + two.Stats("counting").Commits; got != uint64(work.Rows) {
		t.Fatalf("%d commits of %d changes", got, work.Rows)
	}
	if one.Stats("counting").Conflicts+two.Stats("counting").Conflicts == 0 {
		t.Error("no conflict: the workers never met")
	}
}

// barrier admits the first n visitors of a key together; later ones pass.
type barrier struct {
	n    int
	mu   sync.Mutex
	keys map[string]*meeting
}

type meeting struct {
	come int
	full chan struct{}
}

func newBarrier(n int) *barrier { return &barrier{n: n, keys: map[string]*meeting{}} }

// meet waits for the others, with a timeout: a worker may have found the change clean.
func (b *barrier) meet(ctx context.Context, key string) error {
	b.mu.Lock()
	m := b.keys[key]
	if m == nil {
		m = &meeting{full: make(chan struct{})}
		b.keys[key] = m
	}
	m.come++
	if m.come == b.n {
		close(m.full)
	}
	b.mu.Unlock()
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	select {
	case <-m.full:
	case <-late.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
