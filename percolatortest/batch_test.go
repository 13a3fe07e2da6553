package percolatortest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pt "github.com/percolator-go/percolator/percolatortest"
)

// gated is a batch observer of orders. Its first run waits until the other changes are queued,
// which makes the sizes of the batches deterministic.
type gated struct {
	fn     func(tx *percolator.Tx, changes []percolator.Notification) error
	began  chan struct{} // receives when the run of row "gate" begins
	opened chan struct{} // closed to let that run end

	mu    sync.Mutex
	calls [][]string // rows of each call
}

func newGated(fn func(tx *percolator.Tx, changes []percolator.Notification) error) *gated {
	return &gated{fn: fn, began: make(chan struct{}, 1), opened: make(chan struct{})}
}

func (g *gated) register(opts ...percolator.ObserverOption) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		r.StrongBatch("gated", item, func(ctx context.Context, tx *percolator.Tx,
			changes []percolator.Notification) error {
			var rows []string
			for _, n := range changes {
				rows = append(rows, n.Row)
			}
			g.mu.Lock()
			g.calls = append(g.calls, rows)
			g.mu.Unlock()
			if rows[0] == "gate" {
				g.began <- struct{}{}
				select {
				case <-g.opened:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return g.fn(tx, changes)
		}, append(opts, percolator.Concurrency(1))...)
	}
}

// run writes the rows while the first run is blocked, and then runs all of them.
func (g *gated) run(t *testing.T, n *pt.Node, rows []string) {
	t.Helper()
	n.Set(t, "gate", item, "x")
	<-g.began
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		for _, row := range rows {
			tx.Set(row, item, []byte("x"))
		}
		return nil
	})
	until(t, func() bool { return int(n.Node().Status().Observers[0].Queued) == len(rows) })
	close(g.opened)
	n.RunUntilIdle(t)
}

func rowsOf(count int) (rows []string) {
	for i := range count {
		rows = append(rows, fmt.Sprintf("row/%03d", i))
	}
	return rows
}

// TestBatch: queued changes run together, up to Batch, ordered by row; in an idle system a
// change runs alone.
func TestBatch(t *testing.T) {
	g := newGated(func(tx *percolator.Tx, changes []percolator.Notification) error {
		for _, n := range changes {
			tx.Set(n.Row, tally, []byte("1"))
		}
		return nil
	})
	n := pt.Start(t, g.register(percolator.Batch(40)),
		pt.Tables(percolator.TableSpec{Name: tally.Table}))
	g.run(t, n, rowsOf(100))
	var sizes []int
	for _, rows := range g.calls {
		sizes = append(sizes, len(rows))
		if !slices.IsSorted(rows) {
			t.Errorf("batch %q is not ordered", rows)
		}
	}
	if want := []int{1, 40, 40, 20}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
	if s := n.Stats(t, "gated"); s.Commits != 101 || s.Runs != 101 || s.Conflicts+s.Failures != 0 {
		t.Errorf("%+v", s)
	}
	if got := len(n.Column(t, tally)); got != 101 {
		t.Errorf("the runs covered %d rows", got)
	}
}

// TestPoisonInABatch: if one change of a batch always fails, it is parked with its error, and
// every other change commits once. Finding it costs two calls per halving of the batch.
func TestPoisonInABatch(t *testing.T) {
	for _, poison := range []int{0, 50, 99} {
		t.Run(strconv.Itoa(poison), func(t *testing.T) {
			rows := rowsOf(100)
			bad := rows[poison]
			g := newGated(func(tx *percolator.Tx, changes []percolator.Notification) error {
				for _, n := range changes {
					if n.Row == bad {
						return errors.New("no apples")
					}
					tx.Set(fmt.Sprintf("%s/%d", n.Row, tx.StartTS()), tally, []byte("1"))
				}
				return nil
			})
			n := pt.Start(t, g.register(percolator.Batch(100), percolator.MaxAttempts(3)),
				pt.Tables(percolator.TableSpec{Name: tally.Table}))
			g.run(t, n, rows)
			parked := n.Parked(t, "gated")
			if len(parked) != 1 || parked[0].Row != bad || parked[0].Attempts != 3 ||
				parked[0].Error != "no apples" {
				t.Errorf("PARKED: %+v, want %s alone", parked, bad)
			}
			if got := len(n.Column(t, tally)); got != len(rows) {
				t.Errorf("DROPPED: %d commits of %d valid changes", got, len(rows))
			}
			if s := n.Stats(t, "gated"); s.Failures != 3 || s.Parked != 1 {
				t.Errorf("%+v", s)
			}
			calls := 0
			for _, c := range g.calls[1:] {
				if len(c) > 1 || c[0] != bad {
					calls++
				}
			}
			if calls > 1+2*7 { // 100 can be halved seven times
				t.Errorf("%d calls to find the failing change: %d", calls, lengths(g.calls))
			}
		})
	}
}

func lengths(calls [][]string) (n []int) {
	for _, c := range calls {
		n = append(n, len(c))
	}
	return n
}

// TestBatchIsAcknowledged: the notifications of a committed batch are not cleared, as if the
// process had died, and are found again. No change runs twice.
func TestBatchIsAcknowledged(t *testing.T) {
	g := newGated(func(tx *percolator.Tx, changes []percolator.Notification) error {
		for _, n := range changes {
			tx.Set(fmt.Sprintf("%s/%d", n.Row, tx.StartTS()), tally, []byte("1"))
		}
		return nil
	})
	n := pt.Start(t, g.register(), pt.Tables(percolator.TableSpec{Name: tally.Table}))
	lost := n.Inject(t, pt.Fault{Kind: pt.ClearLost, Observer: "gated", Times: 2})
	g.run(t, n, rowsOf(50))
	if got := len(n.Column(t, tally)); got != 51 || lost.Count() != 2 {
		t.Errorf("UNACKNOWLEDGED: %d commits of 51 changes", got)
	}
	if s := n.Stats(t, "gated"); s.Commits != 51 || s.Skipped == 0 {
		t.Errorf("%+v", s)
	}
}

// TestBatchesOfTablets: all changes of a batch belong to one tablet.
func TestBatchesOfTablets(t *testing.T) {
	g := newGated(func(*percolator.Tx, []percolator.Notification) error { return nil })
	n := pt.Start(t, g.register(), pt.Tables(percolator.TableSpec{
		Name: item.Table, SplitKeys: []string{"h", "row/030"},
	}))
	n.Set(t, "row/030", item, "seen") // caches the tablet map
	n.RunUntilIdle(t)
	g.run(t, n, rowsOf(60))
	for _, rows := range g.calls {
		if (rows[0] < "row/030") != (rows[len(rows)-1] < "row/030") {
			t.Errorf("a batch spans tablets: %q to %q", rows[0], rows[len(rows)-1])
		}
	}
	if len(g.calls) != 4 {
		t.Errorf("batches of %d", lengths(g.calls))
	}
}

// TestBatchRegistration: the registry rejects invalid batch options.
func TestBatchRegistration(t *testing.T) {
	one := func(context.Context, *percolator.Tx, percolator.Notification) error { return nil }
	many := func(context.Context, *percolator.Tx, []percolator.Notification) error { return nil }
	for name, register := range map[string]func(r *percolator.Registry){
		"of none":    func(r *percolator.Registry) { r.StrongBatch("o", item, many, percolator.Batch(0)) },
		"too large":  func(r *percolator.Registry) { r.WeakBatch("o", item, many, percolator.Batch(1001)) },
		"of singles": func(r *percolator.Registry) { r.Strong("o", item, one, percolator.Batch(2)) },
		"of nothing": func(r *percolator.Registry) { r.StrongBatch("o", item, nil) },
	} {
		r := percolator.NewRegistry()
		if register(r); !errors.Is(r.Err(), percolator.ErrInvalid) || len(r.Observers()) != 0 {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
}

// until polls ok until it returns true, for conditions without a channel.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timeout")
		}
	}
}
