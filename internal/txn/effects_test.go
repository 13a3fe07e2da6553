package txn_test

import (
	"context"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestWaitForAsksAtOnce: known tablets are queried for effects concurrently, so that a wait takes
// as long as the slowest answer; where some have been split since, all parts are queried.
func TestWaitForAsksAtOnce(t *testing.T) {
	w := newWorld(t)
	w.Observe(w.table, "c", mvcc.ObservedStrong)
	c, p := w.client(txn.Config{})
	var at mvcc.Timestamp
	for _, row := range []string{"a", "h", "q"} {
		at = w.set(c, "1", row)
		w.settle(c, row)
	}
	// Each of the three answers waits until all three have been queried.
	var asked atomic.Int32
	all := make(chan struct{})
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPending().GetEffects() == nil {
			return txntest.Fault{}
		}
		if asked.Add(1) == 3 {
			close(all)
		}
		return txntest.Fault{Before: func(ctx context.Context) {
			select {
			case <-all:
			case <-ctx.Done():
			}
		}}
	})
	if _, err := c.WaitFor(w.ctx, at); err != nil {
		t.Fatalf("the tablets are queried one after another: %v", err)
	}
	for _, row := range []string{"b", "i", "j", "r"} {
		w.Split(w.table, row)
	}
	asked.Store(3)
	if _, err := c.WaitFor(w.ctx, at); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load() - 3; n < 2*7 {
		t.Errorf("%d questions to 7 tablets, want two to each", n)
	}
}

// cell returns the row's cell.
func (w *world) cell(row string) mvcc.Cell {
	return mvcc.Cell{Table: w.table, Row: row, Column: "c"}
}

// settle clears the row's notification, as its observer would.
func (w *world) settle(c *txn.Client, row string) {
	w.t.Helper()
	err := c.ClearNotifies(w.ctx, []mvcc.Cell{w.cell(row)},
		mvcc.ClearNotifyRequest{UpTo: w.Timestamps(1)})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestObservedReadsAreReads: a failed read of an observer's own cells fails the run's transaction
// like any other read.
func TestObservedReadsAreReads(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetGet() != nil {
			return txntest.Fault{
				Answer: &pb.Error{Code: pb.Error_CODE_INVALID, Message: "injected"},
			}
		}
		return txntest.Fault{}
	})
	tx := w.begin(c)
	if _, err := tx.GetObserved(w.ctx, w.cell("a")); err == nil {
		t.Fatal("no error")
	}
	tx.Set(key("b"), []byte("x"))
	if _, err := tx.Commit(w.ctx); err == nil {
		t.Error("committed after a failed read")
	}
}
