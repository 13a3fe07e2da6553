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

// gated is an observer of orders that takes batches: its first run waits until the others
// are queued, so that the size of the batches is known.
type gated struct {
	fn     func(tx *percolator.Tx, changes []percolator.Notification) error
	began  chan struct{} // the row "gate" runs
	opened chan struct{} // closed: it may end

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

// run writes the rows while the first run is held up, and then has all of them run.
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

// TestBatch: what waits is run for together, up to Batch, in the order of rows; a change of
// an idle system is run for by itself.
func TestBatch(t *testing.T) {
	g := newGated(func(tx *percolator.Tx, changes []percolator.Notification) error {
		for _, n := range changes {
			tx.Set(n.Row, tally, []byte("1"))
		}
		return nil
	})
	n := pt.Start(t, g.register(percolator.Batch(40)),
		pt.WithTables(percolator.TableSpec{Name: tally.Table}))
	g.run(t, n, rowsOf(100))
	var sizes []int
	for _, rows := range g.calls {
		sizes = append(sizes, len(rows))
		if !slices.IsSorted(rows) {
			t.Errorf("a batch of %q", rows)
		}
	}
	if want := []int{1, 40, 40, 20}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v, want %v", sizes, want)
	}
	if s := n.Stats(t, "gated"); s.Commits != 101 || s.Runs != 101 || s.Conflicts+s.Failures != 0 {
		t.Errorf("%+v", s)
	}
	if got := len(n.Column(t, tally)); got != 101 {
		t.Errorf("%d rows were run for", got)
	}
}

// TestPoisonInABatch: of a batch in which one change always fails that one is parked, with
// its error, and every other is committed, once; to find it takes two more calls for each
// time that the batch can be halved.
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
				pt.WithTables(percolator.TableSpec{Name: tally.Table}))
			g.run(t, n, rows)
			parked := n.Parked(t, "gated")
			if len(parked) != 1 || parked[0].Row != bad || parked[0].Attempts != 3 ||
				parked[0].Error != "no apples" {
				t.Errorf("PARKED: %+v, want %s alone", parked, bad)
			}
			if got := len(n.Column(t, tally)); got != len(rows) {
				t.Errorf("DROPPED: %d commits of %d changes that can be", got, len(rows))
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
				t.Errorf("%d calls to find it: %d", calls, lengths(g.calls))
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

// TestBatchIsAcknowledged: the notifications of a batch that has committed are not cleared,
// as if its process had died before, and found again: no change is run for twice.
func TestBatchIsAcknowledged(t *testing.T) {
	g := newGated(func(tx *percolator.Tx, changes []percolator.Notification) error {
		for _, n := range changes {
			tx.Set(fmt.Sprintf("%s/%d", n.Row, tx.StartTS()), tally, []byte("1"))
		}
		return nil
	})
	n := pt.Start(t, g.register(), pt.WithTables(percolator.TableSpec{Name: tally.Table}))
	lost := n.Inject(t, pt.Fault{Kind: pt.ClearLost, Observer: "gated", Times: 2})
	g.run(t, n, rowsOf(50))
	if got := len(n.Column(t, tally)); got != 51 || lost.Count() != 2 {
		t.Errorf("UNACKNOWLEDGED: %d commits of 51 changes", got)
	}
	if s := n.Stats(t, "gated"); s.Commits != 51 || s.Skipped == 0 {
		t.Errorf("%+v", s)
	}
}

// TestBatchesOfTablets: a batch has changes of one tablet.
func TestBatchesOfTablets(t *testing.T) {
	g := newGated(func(*percolator.Tx, []percolator.Notification) error { return nil })
	n := pt.Start(t, g.register(), pt.WithTables(percolator.TableSpec{
		Name: item.Table, SplitKeys: []string{"h", "row/030"},
	}))
	n.Set(t, "row/030", item, "seen") // the tablets are known from here on
	n.RunUntilIdle(t)
	g.run(t, n, rowsOf(60))
	for _, rows := range g.calls {
		if (rows[0] < "row/030") != (rows[len(rows)-1] < "row/030") {
			t.Errorf("a batch from %q to %q", rows[0], rows[len(rows)-1])
		}
	}
	if len(g.calls) != 4 {
		t.Errorf("batches of %d", lengths(g.calls))
	}
}

// TestBatchRegistration: what a registration of batches must not be.
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

// until waits for what is not told on any channel.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it never happens")
		}
	}
}
