package txn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
)

// notifications returns the rows with a notification of the weak column, and their timestamps.
func (w *world) notifications() map[string]mvcc.Timestamp {
	found := map[string]mvcc.Timestamp{}
	w.Look(func(v *mvcctest.MemView) {
		for c, n := range v.Notifications() {
			found[c.Row] = n.TS
		}
	})
	return found
}

func weak(row string) txn.Key { return txn.Key{Table: "t", Row: row, Column: "weak"} }

// A transaction that only notifies takes a timestamp above its start and conflicts with nothing.
func TestNotifyAlone(t *testing.T) {
	w := newWorld(t)
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	c, _ := w.client(txn.Config{})
	one, two := w.begin(c), w.begin(c)
	for _, tx := range []*txn.Txn{one, two} {
		for _, row := range threeRows {
			tx.Notify(weak(row))
			tx.Notify(weak(row))
		}
	}
	first, err1 := one.Commit(w.ctx)
	second, err2 := two.Commit(w.ctx)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if first <= two.StartTS() || second <= first {
		t.Errorf("timestamps %d, %d after start %d", first, second, two.StartTS())
	}
	for _, row := range threeRows {
		if got := w.notifications()[row]; got != second {
			t.Errorf("%s: %d, want %d", row, got, second)
		}
	}
}

// TestNotifyAloneGoesBack: notifications from a run, in a transaction that only notifies, have the
// run's origin. Catches BROKEN=notify_without_origin.
func TestNotifyAloneGoesBack(t *testing.T) {
	w := newWorld(t)
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	c, _ := w.client(txn.Config{})
	origin := w.Timestamps(1)
	_, err := c.Run(txn.WithOrigin(w.ctx, origin), txn.Options{},
		func(_ context.Context, tx *txn.Txn) error {
			tx.Notify(weak("a"))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	w.Look(func(v *mvcctest.MemView) {
		for _, n := range v.Notifications() {
			if got := n.Origin(); got != origin {
				t.Errorf("EFFECT-MISSING: the notification goes back to %d, want %d", got, origin)
			}
		}
	})
}

// Notifications of a transaction that writes become visible if and when it commits, in one phase
// and in two.
func TestNotifyWithWrites(t *testing.T) {
	for name, rows := range ways {
		w := newWorldOf(t, name)
		w.Observe(w.table, "weak", mvcc.ObservedWeak)
		c, _ := w.client(txn.Config{})
		tx, failing := w.begin(c), w.begin(c)
		for _, row := range rows {
			tx.Set(key(row), nil)
			failing.Set(key(row), nil)
			tx.Notify(weak(row))
			failing.Notify(weak("not"))
		}
		ts, err := tx.Commit(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := failing.Commit(w.ctx); !errors.Is(err, txn.ErrConflict) {
			t.Errorf("%s: the commit ended with %v, want ErrConflict", name, err)
		}
		c.Flush()
		found := w.notifications()
		for _, row := range rows {
			if found[row] != ts {
				t.Errorf("%s: %s: %d, want %d", name, row, found[row], ts)
			}
		}
		if len(found) != len(rows) {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// Writing a weak column and notifying any other are refused.
func TestNotifyOnly(t *testing.T) {
	w := newWorld(t)
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	c, _ := w.client(txn.Config{})
	for name, fill := range map[string]func(*txn.Txn){
		"write weak": func(tx *txn.Txn) { tx.Set(weak("a"), nil) },
		"write weak in two phases": func(tx *txn.Txn) {
			tx.Set(weak("a"), nil)
			tx.Set(key("z"), nil)
		},
		"notify data": func(tx *txn.Txn) { tx.Notify(key("a")) },
		"notify data with a write": func(tx *txn.Txn) {
			tx.Notify(key("a"))
			tx.Set(key("a"), nil)
		},
		"notify data, in two phases": func(tx *txn.Txn) {
			tx.Notify(key("a"))
			tx.Set(key("z"), nil)
		},
	} {
		tx := w.begin(c)
		fill(tx)
		if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrNotifyOnly) {
			t.Errorf("%s: the commit ended with %v, want ErrNotifyOnly", name, err)
		}
	}
	c.Flush()
	if n := w.Locks(w.table); n != 0 {
		t.Errorf("%d locks left", n)
	}
}

// WaitIdle waits for pending work, and lists it when its context ends.
func TestWaitIdle(t *testing.T) {
	w := newWorld(t)
	release := w.hold(txn.Config{}, threeRows...)
	w.Observe(w.table, key("a").Column, mvcc.ObservedStrong) // other locks do not count
	c, _ := w.client(txn.Config{})
	short, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
	defer cancel()
	if err := c.WaitIdle(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitIdle returned %v, want the deadline's error", err)
	}
	idle := make(chan error, 1)
	go func() { idle <- c.WaitIdle(w.ctx) }()
	if err := release(); err != nil {
		t.Fatal(err)
	}
	// nor do notifications without an observer
	w.Observe(w.table, key("a").Column, mvcc.NotObserved)
	if err := <-idle; err != nil {
		t.Error(err)
	}
}

// The client learns which columns of a row are read together, reads them in one message, and stops
// when the prefetched cells are not used.
func TestPrefetch(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		for _, row := range threeRows {
			for _, column := range []string{"one", "two", "three"} {
				tx.Set(txn.Key{Table: "t", Row: row, Column: column}, []byte(row+column))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.Flush()
	read := func(name string, columns ...string) (messages uint64) {
		t.Helper()
		before := c.Stats().Reads
		if _, err := c.Run(w.ctx, txn.Options{Name: name},
			func(ctx context.Context, tx *txn.Txn) error {
				for _, row := range threeRows {
					for _, column := range columns {
						v, _, err := tx.Get(ctx, txn.Key{Table: "t", Row: row, Column: column})
						if err != nil || string(v) != row+column {
							t.Errorf("%q, %v", v, err)
						}
					}
				}
				return nil
			}); err != nil {
			t.Fatal(err)
		}
		return c.Stats().Reads - before
	}
	if n := read("x", "one", "two", "three"); n != 9 {
		t.Errorf("not learned yet: %d messages", n)
	}
	if n := read("x", "one", "two", "three"); n != 3 {
		t.Errorf("learned: %d messages for 3 rows", n)
	}
	if n := read("y", "one", "two"); n != 6 {
		t.Errorf("another name: %d messages", n)
	}
	used := c.Stats()
	if used.PrefetchAsked != 6 || used.PrefetchUsed != 6 {
		t.Errorf("asked for %d, used %d", used.PrefetchAsked, used.PrefetchUsed)
	}
	for range 4 {
		read("x", "one")
	}
	before := c.Stats().PrefetchAsked
	read("x", "one")
	if n := c.Stats().PrefetchAsked - before; n != 0 {
		t.Errorf("still asks for %d after misses", n)
	}
}

// The columns that transactions of a name have read in the rows that they announced are read with
// the first read of the next transaction, for all rows that it announces; other rows are read as
// before.
func TestExpectedRows(t *testing.T) {
	w, rows := newWorld(t), []string{"a", "a1", "a2"} // in one tablet
	c, _ := w.client(txn.Config{})
	read := func(announced ...string) (messages uint64) {
		t.Helper()
		before := c.Stats().Reads
		_, err := c.Run(w.ctx, txn.Options{Name: "x"}, func(ctx context.Context, tx *txn.Txn) error {
			for _, row := range announced {
				tx.Expect(mvcc.Cell{Table: w.table, Row: row, Column: "changed"})
			}
			for _, row := range rows {
				if _, err := tx.GetMulti(ctx, []txn.Key{
					{Table: "t", Row: row, Column: "one"}, {Table: "t", Row: row, Column: "two"},
				}); err != nil {
					return err
				}
				if _, _, err := tx.Get(ctx, txn.Key{Table: "t", Row: row, Column: "three"}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return c.Stats().Reads - before
	}
	if n := read(rows...); n != 6 {
		t.Errorf("not learned yet: %d messages", n)
	}
	if n := read(rows...); n != 1 {
		t.Errorf("learned: %d messages for 3 rows", n)
	}
	if n := read(rows[0]); n != 5 {
		t.Errorf("one row of three announced: %d messages", n)
	}
	if s := c.Stats(); s.PrefetchAsked != s.PrefetchUsed || s.Messages["get"] != 6+1+5 {
		t.Errorf("asked for %d, used %d, with %v messages", s.PrefetchAsked, s.PrefetchUsed, s.Messages)
	}
}

// A locked prefetched cell is not kept: its reader waits for the lock then.
func TestPrefetchLocked(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	k := func(column string) txn.Key { return txn.Key{Table: "t", Row: "a", Column: column} }
	for range 3 { // learn
		tx := w.begin(c)
		for _, column := range []string{"one", "c"} {
			if _, _, err := tx.Get(w.ctx, k(column)); err != nil {
				t.Fatal(err)
			}
		}
		_ = tx.Rollback(w.ctx)
	}
	release := w.hold(txn.Config{}, threeRows...) // locks row a, column c
	tx := w.begin(c)
	if _, _, err := tx.Get(w.ctx, k("one")); err != nil {
		t.Fatal(err)
	}
	if n := c.Stats().PrefetchLocked; n != 1 {
		t.Errorf("%d guesses were locked", n)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if v, _, err := tx.Get(w.ctx, k("c")); string(v) != "held" || err != nil {
		t.Errorf("c is %q, %v, want held", v, err)
	}
}
