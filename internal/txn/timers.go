package txn

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Durable timers: cells of mvcc.TimerTable, which a transaction writes like its other cells.
// When they are due, actors/timers fires them, or postpones one whose transaction committed late.
// A transaction buffers timers until its commit begins, because their due times are first counted
// from there, and because Commit has a context to query meta for the observers of their columns.

// unsetTimer is a timer buffered until the commit.
type unsetTimer struct {
	key   Key
	after time.Duration
}

// NotifyAfter schedules a run of the column's weak observer for the row, at least d after the
// commit, if the transaction commits. A negative d counts as 0.
func (t *Txn) NotifyAfter(k Key, d time.Duration) {
	if err := t.c.cfg.checkAddress(k.Row, k.Column); err != nil {
		t.Refuse(err)
		return
	}
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.grow(k, 0) {
		t.timers = append(t.timers, unsetTimer{k, max(d, 0)})
	}
}

// setTimers buffers the timers' cells, for Commit.
func (t *Txn) setTimers(ctx context.Context) error {
	if len(t.timers) == 0 {
		return nil
	}
	// Upper bound of the start timestamp's age: the function may have been slow.
	var age time.Duration
	if t.begun() != 0 {
		age = t.began.Elapsed()
	}
	start, err := t.start(ctx)
	if err != nil {
		return err
	}
	for _, one := range t.timers {
		id, err := t.c.meta.TableID(ctx, one.key.Table)
		if err != nil {
			return err
		}
		target := mvcc.Cell{Table: id, Row: one.key.Row, Column: one.key.Column}
		if err := t.c.weak.check(ctx, t.c.meta, target); err != nil {
			return err
		}
		cell, value := mvcc.Timer{
			Target: target, Due: start.Millis() + millisUp(age+one.after),
			After: millisUp(one.after),
		}.Write()
		t.put(cell, mvcc.KindPut, value)
	}
	t.timers = nil
	return nil
}

// millisUp rounds up.
func millisUp(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Fire deletes the cell of a timer, for actors/timers, and sets the timer that replaces it,
// notifies its target, or neither. The caller has read the cell in this transaction's
// snapshot. A timer fires at most once: a concurrent commit that deletes it is a conflict.
func (t *Txn) Fire(timer mvcc.Cell, later *mvcc.Timer, notify *mvcc.Cell) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.tooLate() {
		return
	}
	t.put(timer, mvcc.KindDelete, nil)
	if later != nil {
		cell, value := later.Write()
		t.put(cell, mvcc.KindPut, value)
	}
	if notify != nil {
		t.put(*notify, 0, nil)
	}
}

// WeakColumns returns the columns that weak observers of the catalogue observe, without retired
// observers.
func WeakColumns(c *pb.Catalogue) map[mvcc.ObservedColumn]bool {
	out := map[mvcc.ObservedColumn]bool{}
	for _, o := range c.GetObservers() {
		if o.Weak && !o.Retired {
			out[mvcc.ObservedColumn{
				Table: mvcc.TableID(o.Table), Column: wire.String(o.Column),
			}] = true
		}
	}
	return out
}

// weakColumns caches columns known to have a weak observer. If the observer has been removed
// since, a timer of the column has no effect when it fires.
type weakColumns struct {
	mu    sync.Mutex
	found map[mvcc.ObservedColumn]bool
}

// check returns ErrNotifyOnly if no weak observer is registered for the cell's column. It
// queries meta only for columns that are not cached.
func (w *weakColumns) check(ctx context.Context, m *meta, c mvcc.Cell) error {
	column := mvcc.ObservedColumn{Table: c.Table, Column: c.Column}
	w.mu.Lock()
	known := w.found[column]
	w.mu.Unlock()
	if known {
		return nil
	}
	catalogue, err := m.Catalogue(ctx)
	if err != nil {
		return err
	}
	found := WeakColumns(catalogue)
	w.mu.Lock()
	w.found = found
	w.mu.Unlock()
	if !found[column] {
		return Errorf("%w: row %q column %q: only a column with a weak observer can be notified",
			ErrNotifyOnly, c.Row, c.Column)
	}
	return nil
}

// SetTimers sets the timers unchanged in one transaction, for restores. It does not check that
// their columns are observed: timers without an observer are dropped when they are due.
func (c *Client) SetTimers(ctx context.Context, timers []mvcc.Timer) error {
	_, err := c.Run(ctx, Options{Name: "timers"}, func(_ context.Context, t *Txn) error {
		t.guard.Lock()
		defer t.guard.Unlock()
		for _, timer := range timers {
			cell, value := timer.Write()
			t.put(cell, mvcc.KindPut, value)
		}
		return nil
	})
	return err
}
