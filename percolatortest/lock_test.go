package percolatortest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestObserversLock: a strong and a weak observer lock a cell that a third one observes. Locks do
// not cause a run of the third; earlier transactions that write or lock the cell conflict.
func TestObserversLock(t *testing.T) {
	var tallied atomic.Int64
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		r.Strong("item", item, func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			tx.Lock(n.Row, tally)
			tx.Set(n.Row, report, []byte("strong"))
			return nil
		})
		r.Weak("changed", changed, func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			tx.Lock(n.Row, tally)
			tx.Set(n.Row, ran, []byte("weak"))
			return nil
		})
		r.Strong("tally", tally, func(context.Context, *percolator.Tx, percolator.Notification) error {
			tallied.Add(1)
			return nil
		})
	})
	ctx := t.Context()
	n.Set(t, "ann", tally, "7")
	n.RunUntilIdle(t)
	old := func(row string) *percolator.Tx {
		tx, err := n.DB().Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := tx.Get(ctx, row, tally); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	writer, locker := old("ann"), old("ann")
	n.Set(t, "ann", item, "apple")
	n.RunUntilIdle(t)
	want(t, n, "ann", report, "strong")
	writer.Set("ann", tally, []byte("8"))
	if _, err := writer.Commit(ctx); !errors.Is(err, percolator.ErrConflict) {
		t.Errorf("write of a cell that a strong observer has locked since: %v", err)
	}
	locker.Lock("ann", tally)
	locker.Set("bob", ran, []byte("x"))
	if _, err := locker.Commit(ctx); !errors.Is(err, percolator.ErrConflict) {
		t.Errorf("lock of a cell that a strong observer has locked since: %v", err)
	}
	validator := old("ann")
	n.Notify(t, "ann", changed)
	n.RunUntilIdle(t)
	want(t, n, "ann", ran, "weak")
	validator.Validate("ann", tally)
	validator.Set("bob", ran, []byte("x"))
	if _, err := validator.Commit(ctx); err != nil {
		t.Errorf("validation of a cell that was locked but not changed: %v", err)
	}
	want(t, n, "ann", tally, "7")
	if got := tallied.Load(); got != 1 {
		t.Errorf("the observer of the locked cell ran %d times, want once", got)
	}
}
