package txn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
)

// timers returns the pending timers and their cells.
func (w *world) timers() (set []mvcc.Timer, cells []mvcc.Cell) {
	w.t.Helper()
	w.Look(func(v *mvcctest.MemView) {
		for cw, err := range v.Cells(mvcc.Span{Table: mvcc.TimerTable}, false) {
			if err != nil || cw.Write.Kind != mvcc.KindPut {
				continue
			}
			timer, ok := mvcc.TimerOf(cw.Cell, cw.Write.Value)
			if !ok {
				w.t.Errorf("%v is no timer", cw)
			}
			set, cells = append(set, timer), append(cells, cw.Cell)
		}
	})
	return set, cells
}

// withWeak returns a world whose column "weak" has a weak observer.
func withWeak(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	w.Announce(w.table, "weak")
	return w
}

// TestTimerIsDueAfterTheCommit: a timer is due no earlier than its delay after the commit, also if
// the function was slow before or after its first read, and not much later.
func TestTimerIsDueAfterTheCommit(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		due   int64 // milliseconds after the commit
	}{
		{-time.Second, 0}, {0, 0}, {time.Nanosecond, 1}, {1500 * time.Microsecond, 2},
		{time.Hour, 3_600_000},
	} {
		for _, reads := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := withWeak(t)
				c, _ := w.client(txn.Config{})
				ts, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
					if reads {
						w.read(tx, "a")
					}
					<-time.After(30 * time.Second)
					tx.NotifyAfter(weak("a"), test.after)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				set, _ := w.timers()
				want := mvcc.Timer{
					Target: mvcc.Cell{Table: w.table, Row: "a", Column: "weak"}, After: test.due,
					Due: ts.Millis() + test.due,
				}
				if len(set) != 1 || set[0] != want {
					t.Errorf("after %v, reads %t: %+v, want %+v", test.after, reads, set, want)
				}
			})
		}
	}
}

// TestTimersThatCannotBeSet: the transaction is refused with a reason, and none of it is written.
func TestTimersThatCannotBeSet(t *testing.T) {
	permission := refused(pb.Error_CODE_PERMISSION)
	catalogue := func(o ...*pb.ObserverInfo) func() (*pb.Catalogue, error) {
		return func() (*pb.Catalogue, error) { return &pb.Catalogue{Observers: o}, nil }
	}
	long := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		key       txn.Key
		times     int
		catalogue func() (*pb.Catalogue, error)
		want      error
	}{
		"a long row":     {key: weak(long), want: txn.ErrTooLarge},
		"too many":       {key: weak("a"), times: 100, want: txn.ErrTooLarge},
		"no such table":  {key: txn.Key{Table: "none", Column: "weak"}, want: txn.ErrNoTable},
		"another column": {key: key("a"), want: txn.ErrNotifyOnly},
		"no observer":    {key: weak("a"), catalogue: catalogue(), want: txn.ErrNotifyOnly},
		"may not be asked": {key: weak("a"), want: txn.ErrPermission,
			catalogue: func() (*pb.Catalogue, error) { return nil, permission }},
		"a retired observer": {key: weak("a"), want: txn.ErrNotifyOnly, catalogue: catalogue(
			&pb.ObserverInfo{Table: 16, Column: []byte("weak"), Weak: true, Retired: true})},
		"a strong observer": {key: weak("a"), want: txn.ErrNotifyOnly, catalogue: catalogue(
			&pb.ObserverInfo{Table: 16, Column: []byte("weak")})},
	} {
		w := withWeak(t)
		c, a := w.answering(txn.Config{TransactionBytes: 10_000})
		a.catalogue = test.catalogue
		runs := 0
		_, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			runs++
			tx.Set(key("b"), []byte("x"))
			for range max(test.times, 1) {
				tx.NotifyAfter(test.key, time.Second)
			}
			return nil
		})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "not committed") || runs != 1 {
			t.Errorf("%s: %d runs, %v", name, runs, err)
		}
		if set, _ := w.timers(); len(set) != 0 || w.get(c, "b") != "-" {
			t.Errorf("%s: %d timers, b is %q", name, len(set), w.get(c, "b"))
		}
	}
}

// TestTimersAskOncePerColumn: meta is queried for a column until it has a weak observer, and then
// no more.
func TestTimersAskOncePerColumn(t *testing.T) {
	w := withWeak(t)
	c, a := w.answering(txn.Config{})
	asked := 0
	a.catalogue = func() (*pb.Catalogue, error) {
		asked++
		return a.Process.Catalogue(w.ctx)
	}
	set := func(column string) error {
		_, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			tx.NotifyAfter(txn.Key{Table: "t", Row: "a", Column: column}, time.Second)
			return nil
		})
		return err
	}
	for _, step := range []struct {
		column string
		want   error
		asked  int
	}{
		{"weak", nil, 1}, {"weak", nil, 1}, {"late", txn.ErrNotifyOnly, 2},
		{"late", txn.ErrNotifyOnly, 3}, {"weak", nil, 3},
	} {
		if err := set(step.column); !errors.Is(err, step.want) || asked != step.asked {
			t.Errorf("%s: %v after %d questions, want %d", step.column, err, asked, step.asked)
		}
	}
	w.Announce(w.table, "late")
	if err := set("late"); err != nil {
		t.Errorf("an observer that came later: %v", err)
	}
}

// TestFireOnce: of two concurrent firings of one timer one commits, although one postpones the
// timer and the other removes it.
func TestFireOnce(t *testing.T) {
	w := withWeak(t)
	c, _ := w.client(txn.Config{})
	target := mvcc.Cell{Table: w.table, Row: "a", Column: "weak"}
	if _, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		tx.NotifyAfter(weak("a"), time.Second)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	set, cells := w.timers()
	later := set[0]
	later.Due += 1000
	one, two := w.begin(c), w.begin(c)
	one.Fire(cells[0], &later, nil)
	two.Fire(cells[0], nil, &target)
	if _, err := one.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Commit(w.ctx); !errors.Is(err, txn.ErrConflict) {
		t.Errorf("fired twice: %v", err)
	}
	c.Flush()
	set, cells = w.timers()
	if n := len(w.notifications()); len(set) != 1 || set[0] != later || n != 0 {
		t.Fatalf("%d notifications, timers %+v, want %+v", n, set, later)
	}
	three := w.begin(c)
	three.Fire(cells[0], nil, &target)
	ts, err := three.Commit(w.ctx)
	c.Flush()
	if set, _ = w.timers(); err != nil || len(set) != 0 || w.notifications()["a"] != ts {
		t.Errorf("%v, timers %+v, notified %v", err, set, w.notifications())
	}
}
