package observer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestReplayCrashBeforeClear: a replay whose run has committed but whose entry was not cleared, as
// after a crash between the two, is found clean: it overrides the acknowledgment once.
func TestReplayCrashBeforeClear(t *testing.T) {
	var down atomic.Bool
	var lost atomic.Int64
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Observer: func(c *observer.Config) {
			quick(c)
			c.CommitTimeout = 100 * time.Millisecond
		},
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return nil
			})
		},
		Faults: func(req *pb.TabletRequest) txntest.Fault {
			if !down.Load() {
				return txntest.Fault{}
			}
			switch op := req.Op.(type) {
			case *pb.TabletRequest_OnePhase: // as a tablet that does not support it
				op.OnePhase.Clear = false
			case *pb.TabletRequest_ClearNotify:
				lost.Add(1)
				return txntest.Fault{NotSent: true}
			}
			return txntest.Fault{}
		},
	})
	set(t, n, "row", raw)
	n.WaitIdle(t)
	cell := n.Cell(table, "row", raw.Name)
	down.Store(true)
	if err := n.Client.Replay(bounded(t, time.Minute), 0, []mvcc.Cell{cell}); err != nil {
		t.Fatal(err)
	}
	// Its run has committed; it was found and judged again since, and still not cleared.
	notifytest.Eventually(t, time.Minute, "run once, found again", func() bool {
		s := n.Stats("reader")
		return s.Commits == 2 && s.Skipped > 1
	})
	if e, there := cluster.Notification(cell); !there || !e.Replay || lost.Load() < 1 {
		t.Errorf("%v %v, %d clears lost", e, there, lost.Load())
	}
	down.Store(false)
	n.WaitIdle(t)
	if s := n.Stats("reader"); s.Commits != 2 || s.Runs != 2 {
		t.Errorf("a replay ran %d times", s.Commits-1)
	}
}

// TestReplayWhileCleared: a replay that arrives while a check clears an older entry of a clean cell
// stays, although the check began after the replay took its timestamp. Catches
// BROKEN=clean_cleared_to_start.
func TestReplayWhileCleared(t *testing.T) {
	n, cluster := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		return nil
	})
	set(t, n, "row", raw)
	n.WaitIdle(t)
	cell, replay := n.Cell(table, "row", raw.Name), cluster.Timestamps(1)
	var once sync.Once
	n.Process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetClearNotify() == nil {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(context.Context) {
			once.Do(func() { cluster.Mark(cell, mvcc.Notify{TS: replay, Replay: true}) })
		}}
	})
	cluster.Mark(cell, mvcc.Notify{TS: 1}) // left by a run that has committed
	notifytest.Eventually(t, time.Minute, "all is cleared", func() bool {
		return cluster.Dirty() == 0
	})
	n.WaitIdle(t)
	if s := n.Stats("reader"); s.Commits != 2 {
		t.Errorf("REPLAY-LOST: %d runs have committed, want one for the change and one for the replay",
			s.Commits)
	}
}
