package txn_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// park parks the notifications of the rows.
func (w *world) park(rows ...string) {
	var parked []mvcc.Mutation
	for _, row := range rows {
		ts := w.Timestamps(1)
		parked = append(parked, mvcc.Mutation{Group: mvcc.GroupNotify, Cell: w.cell(row),
			Notify: &mvcc.Notify{TS: ts, Attempts: 9, ParkedTS: ts + 1, Error: "gave up"}})
	}
	w.Apply(parked)
}

// replayed returns the rows with a notification marked for replay, and those parked.
func (w *world) replayed() (again, parked []string) {
	w.Look(func(v *mvcctest.MemView) {
		for c, n := range v.Notifications() {
			switch {
			case n.ParkedTS != 0:
				parked = append(parked, c.Row)
			case n.Replay && n.Attempts == 0:
				again = append(again, c.Row)
			}
		}
	})
	return again, parked
}

// withParked returns a world with an observer "o" of column "c", of which 600 notifications are
// parked in each of two tablets and one waits, and another observer with one that is parked.
func withParked(t *testing.T) (w *world, c *txn.Client, a *answers, rows []string) {
	t.Helper()
	w = newWorld(t)
	w.Observe(w.table, "c", mvcc.ObservedStrong)
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	c, a = w.answering(txn.Config{OperationTimeout: 5 * time.Second})
	a.catalogue = func() (*pb.Catalogue, error) {
		return &pb.Catalogue{Observers: []*pb.ObserverInfo{
			{Name: "weak", Table: uint32(w.table), Column: []byte("weak"), Weak: true},
			{Name: "o", Table: uint32(w.table), Column: []byte("c")},
		}}, nil
	}
	for i := range 600 {
		rows = append(rows, fmt.Sprintf("a%03d", i), fmt.Sprintf("h%03d", i))
	}
	slices.Sort(rows)
	w.park(rows...)
	w.set(c, "waits", "b")
	other := w.cell("other")
	other.Column = "weak"
	w.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: other,
		Notify: &mvcc.Notify{TS: 5, ParkedTS: 6}}})
	return w, c, a, rows
}

// TestReplayParked: all parked notifications of the observer are replayed, each once, and no
// others; a split of a tablet or a lost answer does not change that.
func TestReplayParked(t *testing.T) {
	w, c, a, rows := withParked(t)
	splits := []string{"a550", "h100", "h550"}
	var lost atomic.Bool
	a.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetWalk() != nil && len(splits) > 0 {
			w.Split(w.table, splits[0])
			splits = splits[1:]
		}
		return txntest.Fault{Reply: req.GetNotify() != nil && !lost.Swap(true)}
	})
	var told []uint64
	n, err := c.ReplayParked(w.ctx, "o", func(n uint64) { told = append(told, n) })
	if err != nil || n != 1200 {
		t.Errorf("%d replayed, %v", n, err)
	}
	again, parked := w.replayed()
	if !slices.Equal(again, rows) || !slices.Equal(parked, []string{"other"}) {
		t.Errorf("%d are to be run again, want %d; %v are parked", len(again), len(rows), parked)
	}
	if len(told) < 2 || !slices.IsSorted(told) || told[len(told)-1] != 1200 {
		t.Errorf("reported %d, want two or more, ascending, the last 1200", told)
	}
	n, err = c.ReplayParked(w.ctx, "o", func(uint64) { t.Error("told of nothing") })
	if err != nil || n != 0 {
		t.Errorf("once more: %d replayed, %v", n, err)
	}
}

// TestWalkColumn: a walk yields every entry of the column once and in order, across pages and
// tablets, from any start.
func TestWalkColumn(t *testing.T) {
	w, c, _, rows := withParked(t)
	rows = append(rows, "b")
	slices.Sort(rows)
	for _, from := range []string{"", "a300", "a599\x00", "h", "z"} {
		var met []string
		column := mvcc.ObservedColumn{Table: w.table, Column: "c"}
		for e, err := range c.WalkFrom(w.ctx, mvcc.GroupNotify, column, from) {
			if err != nil {
				t.Fatal(err)
			}
			met = append(met, string(e.Cell.Row))
		}
		first, _ := slices.BinarySearch(rows, from)
		if !slices.Equal(met, rows[first:]) {
			t.Errorf("from %q: %d met, want %d", from, len(met), len(rows)-first)
		}
	}
}

// TestReplayRow: only a row that is parked is replayed.
func TestReplayRow(t *testing.T) {
	w, c, _, _ := withParked(t)
	for _, test := range []struct {
		observer, row string
		want          error
	}{
		{"o", "h007", nil},
		{"o", "h007", txn.ErrInvalid}, // it is not parked any more
		{"o", "b", txn.ErrInvalid},    // it waits
		{"o", "h0077", txn.ErrInvalid},
		{"o", "zz", txn.ErrInvalid},
		{"nobody", "h008", txn.ErrInvalid},
		{"weak", "h008", txn.ErrInvalid},
	} {
		if err := c.ReplayRow(w.ctx, test.observer, test.row); !errors.Is(err, test.want) {
			t.Errorf("%s, %s: %v, want %v", test.observer, test.row, err, test.want)
		}
	}
	if again, parked := w.replayed(); !slices.Equal(again, []string{"h007"}) || len(parked) != 1200 {
		t.Errorf("%v are to be run again, %d are parked", again, len(parked))
	}
}

// TestReplayRefused: the error of a refused replay contains the number of rows replayed before.
func TestReplayRefused(t *testing.T) {
	ofWalk := func(nth int, fault txntest.Fault) func(*world, *answers) {
		return func(_ *world, a *answers) {
			walks := 0
			a.Inject(func(req *pb.TabletRequest) txntest.Fault {
				if req.GetWalk() == nil {
					return txntest.Fault{}
				}
				if walks++; walks < nth {
					return txntest.Fault{}
				}
				return fault
			})
		}
	}
	permission := txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION}}
	for name, test := range map[string]struct {
		observer string
		set      func(*world, *answers)
		want     error
		replayed uint64
	}{
		"no such observer": {"nobody", nil, txn.ErrInvalid, 0},
		"the catalogue may not be read": {"o", func(_ *world, a *answers) {
			a.catalogue = func() (*pb.Catalogue, error) {
				return nil, refused(pb.Error_CODE_PERMISSION)
			}
		}, txn.ErrPermission, 0},
		"the column is not observed any more": {"o", func(w *world, _ *answers) {
			w.Observe(w.table, "c", mvcc.NotObserved)
		}, txn.ErrNotifyOnly, 0},
		"no oracle": {"o", func(_ *world, a *answers) {
			a.Oracle(func(int) (mvcc.Timestamp, int, error) { return 0, 0, errors.New("down") })
		}, txn.ErrUnavailable, 0},
		"the first page may not be read":  {"o", ofWalk(1, permission), txn.ErrPermission, 0},
		"the second page may not be read": {"o", ofWalk(2, permission), txn.ErrPermission, 512},
		"nobody leads the second tablet": {
			"o", ofWalk(3, txntest.Fault{NotSent: true}), txn.ErrUnavailable, 512},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, a, _ := withParked(t)
				if test.set != nil {
					test.set(w, a)
				}
				n, err := c.ReplayParked(w.ctx, test.observer, func(uint64) {})
				if !errors.Is(err, test.want) || n != test.replayed {
					t.Errorf("%d replayed, %v; want %d, %v", n, err, test.replayed, test.want)
				}
				err = c.ReplayRow(w.ctx, test.observer, "h001")
				if n == 0 && !errors.Is(err, test.want) {
					t.Errorf("a row: %v, want %v", err, test.want)
				}
			})
		})
	}
}
