package attack_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// mostUnread is the memory that clients that do not read may add to a node, in bytes: the
	// memory of operations (256 MiB), as much garbage, and unprocessed requests (80 MiB).
	mostUnread = 600 << 20

	rudeConnections = 6
	rudeStreams     = 16 // of each
)

// largeRead writes a cell of 4 MiB and returns a read of it, always the same.
func largeRead(ctx context.Context, t *testing.T, c *target) *pb.TabletRequest {
	t.Helper()
	err := c.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("large", cell, make([]byte, 4<<20))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	table := tableID(ctx, t, c)
	where, err := handle.Client(c.db).Transport().Locate(ctx, table, "large", 1)
	if err != nil || len(where) != 1 {
		t.Fatal(where, err)
	}
	return &pb.TabletRequest{
		TabletId: where[0].TabletId, Epoch: where[0].Epoch,
		Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: uint64(s.StartTS()), Cells: []*pb.Cell{
			{Table: uint32(table), Row: wire.Bytes("large"), Column: wire.Bytes(cell.Name)},
		}}},
	}
}

// manyNeverRead: many streams of several connections request four MiB continuously, read no
// answer, and reconnect when they are closed.
func manyNeverRead(t *testing.T, c *target) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	read := largeRead(ctx, t, c)
	for range 5 { // the usual growth, as by the first clients
		c.served(t)
	}
	before := c.memory(t)
	peak := c.peaks(t)
	var (
		wg   sync.WaitGroup
		sent atomic.Int64
		cuts atomic.Int64
	)
	attack, end := context.WithCancel(ctx)
	for range rudeConnections {
		client := pb.NewPercolatorClient(dial(t, c.Addrs()[0]))
		for range rudeStreams {
			wg.Go(func() {
				for attack.Err() == nil {
					sent.Add(ask(attack, client, read))
					cuts.Add(1)
				}
			})
		}
	}
	for range 10 {
		c.servedByOthers(t)
		c.served(t)
	}
	end()
	wg.Wait()
	most := peak()
	t.Logf("%d reads were sent, %d streams ended; resident, MiB: before %v, at most %v",
		sent.Load(), cuts.Load(), mib(before), mib(most))
	for i := range most {
		if most[i]-before[i] > mostUnread {
			t.Errorf("node %d became %d MiB larger", i, (most[i]-before[i])>>20)
		}
	}
}

// ask opens a stream, sends reads on it until it ends, and returns their number. It requests far
// more than a node's memory, and then slows down, since the test and the nodes share the
// processors.
func ask(ctx context.Context, client pb.PercolatorClient, read *pb.TabletRequest) (sent int64) {
	stream, err := client.Operations(ctx, grpc.WaitForReady(true))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; err == nil; sent++ {
		if sent >= 2000 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return sent
			}
		}
		err = stream.Send(&pb.OperationBatch{
			Operations: []*pb.Operation{{Id: uint64(sent), Request: read}},
		})
	}
	return sent
}

// peaks samples the nodes' memory until the returned function is called, which returns the maximum
// of each.
func (c *target) peaks(t *testing.T) func() []int64 {
	var wg sync.WaitGroup
	done, largest := make(chan struct{}), c.memory(t)
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			for i, now := range c.memory(t) {
				largest[i] = max(largest[i], now)
			}
		}
	})
	return func() []int64 {
		close(done)
		wg.Wait()
		return largest
	}
}
