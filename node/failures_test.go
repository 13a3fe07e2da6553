package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/store"
)

func openForReopen(t *testing.T) (*Node, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cfg := DefaultConfig()
	cfg.Store.InMemory, cfg.Listen, cfg.HTTP, cfg.Insecure = true, "127.0.0.1:0", "", true
	n, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	})
	return n, ctx
}

// panics sends the tablet a call on which its actor panics, and does not wait.
func (n *Node) panics(id uint64) {
	if port := n.router.Port(id); port != nil { // otherwise it is being reopened
		// The call has no request. It may be answered with an error, and so needs a receiver.
		_ = port.Tell(nil, time.Time{}, true, func(actorkit.Result[*pb.TabletResponse]) {})
	}
}

// until polls a condition for less time than a report to an unavailable meta tablet takes.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(reportTimeout * 2 / 3); time.Now().Before(deadline); {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", reportTimeout*2/3, what)
}

func (n *Node) serves(ctx context.Context, id uint64) bool {
	req := &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}
	port := n.router.Port(id)
	if port == nil {
		return false
	}
	r, err := port.Ask(ctx, req, true)
	return err == nil && r.GetStatus().GetLeader()
}

// TestPanicUnderLoad: tablets panic under load, meta's too. Every transaction ends, and the node
// continues.
func TestPanicUnderLoad(t *testing.T) {
	n, ctx := openForReopen(t)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	column, stop, ended := percolator.Column{Table: "t", Name: "c"}, make(chan struct{}),
		make(chan struct{})
	const workers = 16
	for w := range workers {
		go func() {
			defer func() { ended <- struct{}{} }()
			for row := string(rune('a' + w)); ; {
				select {
				case <-stop:
					return
				default: // any outcome will do
					_ = n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
						tx.Set(row, column, nil)
						return nil
					})
				}
			}
		}()
	}
	for range maxReopens {
		for _, id := range []uint64{cluster.MetaTablet, 2} {
			before := n.router.Port(id)
			n.panics(id)
			until(t, "the tablet is opened anew", func() bool {
				return n.router.Port(id) != before && n.serves(ctx, id)
			})
		}
	}
	close(stop)
	for range workers {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a transaction never ended")
		}
	}
	err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("z", column, nil)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReopenDoesNotWaitForMeta: a report waiting for meta delays the reopening of no tablet, and
// one tablet that serves again does not hide another that does not. A tablet created by an
// unreported split is started.
func TestReopenDoesNotWaitForMeta(t *testing.T) {
	n, ctx := openForReopen(t)
	for range maxReopens {
		before := n.router.Port(cluster.MetaTablet)
		n.panics(cluster.MetaTablet)
		until(t, "meta is opened anew", func() bool {
			return n.router.Port(cluster.MetaTablet) != before && n.serves(ctx, cluster.MetaTablet)
		})
	}
	n.panics(cluster.MetaTablet) // beyond the limit
	until(t, "meta has stopped", func() bool { return n.tablets.failures.first() != nil })
	child := &store.Batch{}
	tablet.Bootstrap(child, &pb.TabletDescriptor{
		TabletId: 99, Epoch: 1, StartTable: 1 << 30, EndTable: 1 << 30, EndRow: []byte("x"),
	}, 1)
	if err := n.store.StateWriter().Commit([]*store.Batch{child}); err != nil {
		t.Fatal(err)
	}
	n.tablets.Leading(&pb.TabletDescriptor{TabletId: 2, Epoch: 1})
	before := n.router.Port(2)
	n.panics(2)
	until(t, "tablet 2 is opened anew", func() bool {
		return n.router.Port(2) != before && n.serves(ctx, 2)
	})
	until(t, "the new tablet serves", func() bool {
		return n.router.Port(99) != nil && n.serves(ctx, 99)
	})
	if n.tablets.failures.first() == nil {
		t.Error("meta does not serve, and the node reports that it is ready")
	}
}

// What a replica has fortified is forgotten with it, so that its memory is bounded by the replicas here.
func TestFortifiedGoesWithTheReplica(t *testing.T) {
	n, _ := openForReopen(t)
	n.liveness.Fortify(99, 7, 8)
	n.tablets.Destroyed(99)
	if node, epoch := n.liveness.Fortified(99); node != 0 || epoch != 0 {
		t.Errorf("a destroyed replica still supports node %d under epoch %d", node, epoch)
	}
}

// The failures of a replica are forgotten with it: a node whose broken replica was replaced
// elsewhere serves again.
func TestFailureGoesWithTheReplica(t *testing.T) {
	n, _ := openForReopen(t)
	const id = 99
	for _, end := range []struct {
		name string
		do   func()
	}{
		{"destroyed", func() { n.tablets.Destroyed(id) }},
		{"follows a leader", func() { n.tablets.Following(id, 7) }},
	} {
		n.tablets.Failed(id, store.ErrDiskFull)
		if n.tablets.failures.first() == nil {
			t.Fatal("a failed replica is not reported")
		}
		n.tablets.Following(id, 0) // without a known leader there is nothing better
		if n.tablets.failures.first() == nil {
			t.Fatal("a failed replica is forgotten although it does not work")
		}
		end.do()
		until(t, end.name, func() bool { return n.tablets.failures.first() == nil })
	}
}

// A tablet that panics often is reopened after pauses that grow up to a bound, and again at once
// after a long time without a panic.
func TestReopeningsDecay(t *testing.T) {
	r, now := reopenings{}, time.Now()
	for i, want := range []time.Duration{0, 0, 0, 1, 2, 4, 8, 10, 10, 10} {
		if got := r.next(1, now); got != want*time.Minute {
			t.Errorf("panic %d: %v", i+1, got)
		}
		now = now.Add(want * time.Minute)
	}
	if got := r.next(2, now); got != 0 {
		t.Errorf("the first panic of another tablet: %v", got)
	}
	now = now.Add(reopenMemory)
	if got := r.next(1, now); got != 0 {
		t.Errorf("after a long time without a panic: %v", got)
	}
	if len(r) != 1 {
		t.Errorf("%d tablets are remembered", len(r))
	}
}

// A tablet that has panicked beyond the limit serves again after a pause, and after a long time its
// panics are forgotten.
func TestPanickedTabletComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		defer cancel()
		cfg := DefaultConfig()
		cfg.Store.InMemory, cfg.Store.MemTableSize, cfg.Listen, cfg.HTTP, cfg.Insecure = true,
			16<<20, "", "", true
		n, err := Open(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := n.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		panicAndWait := func(within time.Duration) {
			t.Helper()
			before := n.router.Port(2)
			n.panics(2)
			for begin := time.Now(); n.router.Port(2) == before ||
				!n.serves(ctx, 2); <-time.After(time.Second) {
				if time.Since(begin) > within {
					t.Fatalf("the tablet does not serve again within %v", within)
				}
			}
		}
		for range maxReopens {
			panicAndWait(10 * time.Second)
		}
		panicAndWait(reopenPause + 10*time.Second)
		<-time.After(reopenMemory)
		panicAndWait(10 * time.Second)
	})
}
