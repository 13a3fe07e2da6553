package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/node"
)

// TestWaitForReturnsParkedAndPaused: WaitFor does not wait for parked notifications or those of a
// paused observer, but returns their numbers, if the given commit or an earlier one caused them.
func TestWaitForReturnsParkedAndPaused(t *testing.T) {
	ctx := within(t, time.Minute)
	first := percolator.Column{Table: "named", Name: "first"}
	second := percolator.Column{Table: "named", Name: "second"}
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("copies", first, func(_ context.Context, tx *percolator.Tx,
				n percolator.Notification) error {
				tx.Set(n.Row, second, []byte("x"))
				return nil
			})
			r.Strong("fails", second, func(_ context.Context, _ *percolator.Tx,
				n percolator.Notification) error {
				if strings.HasPrefix(n.Row, "bad") {
					return errors.New("it always does")
				}
				return nil
			}, percolator.MaxAttempts(1))
		}
	})
	db := n.DB()
	set := func(row string) (at percolator.Timestamp) {
		t.Helper()
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row, first, []byte("x"))
			return nil
		}, percolator.CommittedAt(&at))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	expect := func(at percolator.Timestamp, want string) {
		t.Helper()
		left, err := db.WaitFor(ctx, at)
		counts := []string{}
		for _, o := range left {
			counts = append(counts, fmt.Sprintf("{%s %d %d}", o.Name, o.Parked, o.Held))
		}
		if got := fmt.Sprint(counts); err != nil || got != want {
			t.Errorf("left are %s, %v; want %s", got, err, want)
		}
	}
	good := set("good")
	expect(good, "[]")
	bad := set("bad")
	expect(bad, "[{fails 1 0}]")
	expect(good, "[]")
	control := func(paused bool) {
		controlObserver(t, n, &pb.ControlObserverRequest{Name: "copies", Paused: &paused})
	}
	control(true)
	waiting := set("other")
	expect(waiting, "[{copies 0 1} {fails 1 0}]")
	expect(bad, "[{fails 1 0}]")
	control(false)
	expect(waiting, "[{fails 1 0}]")

	if _, err := db.WaitFor(ctx, 0); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("timestamp 0: %v", err)
	}
	if _, err := db.WaitFor(ctx, waiting+percolator.Timestamp(mvcc.TimestampAt(1e6))); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("the future: %v", err)
	}
}

// TestSettled: a snapshot from before a run's commit is not settled, however much later it is
// queried; one from after it is, during work in other tables.
func TestSettled(t *testing.T) {
	ctx := within(t, time.Minute)
	in := percolator.Column{Table: "settled", Name: "in"}
	out := percolator.Column{Table: "settled", Name: "out"}
	other := percolator.Column{Table: "other", Name: "in"}
	gate, end := make(chan struct{}, 1), make(chan struct{})
	defer close(end)
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("copy", in, func(_ context.Context, tx *percolator.Tx,
				n percolator.Notification) error {
				<-gate
				tx.Set(n.Row, out, []byte("x"))
				return nil
			})
			r.Strong("other", other, func(ctx context.Context, _ *percolator.Tx,
				_ percolator.Notification) error {
				<-end
				return ctx.Err()
			})
		}
	})
	db := n.DB()
	snapshot := func() *percolator.Snapshot {
		t.Helper()
		s, err := db.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	is := func(s *percolator.Snapshot, want bool, what string, tables ...string) {
		t.Helper()
		got, err := s.Settled(ctx, tables...)
		if err != nil || got != want {
			t.Errorf("SETTLED: %s: %v, %v", what, got, err)
		}
	}
	set := func(col percolator.Column) (at percolator.Timestamp) {
		t.Helper()
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("r", col, []byte("x"))
			return nil
		}, percolator.CommittedAt(&at))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	awaitTrue(ctx, t, "a new node is settled", func() bool {
		ok, err := snapshot().Settled(ctx)
		return ok && err == nil
	})
	before := snapshot()
	at := set(in)
	during := snapshot()
	is(during, false, "a run is under way")
	is(before, true, "a snapshot from before the change")
	gate <- struct{}{}
	if _, err := db.WaitFor(ctx, at); err != nil {
		t.Fatal(err)
	}
	is(during, false, "the run has committed since")
	is(before, true, "the snapshot from before, later")
	is(snapshot(), true, "a snapshot from after it")
	set(other)
	s := snapshot()
	is(s, false, "all tables, of which one has a run under way")
	is(s, true, "the table that has none", "settled")
	if _, err := s.Settled(ctx, "none"); !errors.Is(err, percolator.ErrNoTable) {
		t.Errorf("a table that is not there: %v", err)
	}
}

// TestWaitForThroughMoves: when WaitFor returns every effect is visible, while leaders move, a
// tablet is split, a node dies, and other clients keep the observers busy.
func TestWaitForThroughMoves(t *testing.T) {
	t.Parallel()
	ctx := within(t, 5*time.Minute)
	r := newRig(t, 3, func(_ int, c *node.Config) {
		c.Observers = notifytest.RegisterCascade
		c.Placement.Busy, c.Placement.Rest = 50*time.Millisecond, time.Hour
		c.LockTTL = time.Second
	})
	for _, table := range notifytest.CascadeTables() {
		if err := r.nodes[0].DB().CreateTable(ctx, table); err != nil {
			t.Fatal(err)
		}
	}
	r.spread(ctx, 3)
	db := r.nodes[0].DB()
	busy, stop := context.WithCancel(ctx)
	var others, waiters sync.WaitGroup
	defer others.Wait()
	defer stop()
	others.Go(func() {
		for j := 0; busy.Err() == nil; j++ {
			_, _, _ = notifytest.Begin(busy, db, fmt.Sprintf("n%d", j%16))
		}
	})
	var waits atomic.Int64
	for i := range 3 {
		waiters.Go(func() {
			for j := 0; busy.Err() == nil; j++ {
				row := fmt.Sprintf("w%d", (i+j)%4)
				to, at, err := notifytest.Begin(busy, db, row)
				if err != nil {
					continue // unavailable for a moment, or past the deadline
				}
				left, err := db.WaitFor(busy, at)
				if err != nil {
					continue
				}
				if len(left) > 0 {
					t.Errorf("left are %v", left)
				}
				if err := notifytest.Arrived(ctx, db, row, to); err != nil {
					t.Errorf("after WaitFor: %v", err)
					return
				}
				waits.Add(1)
			}
		})
	}
	more := func(what string) {
		t.Helper()
		began := time.Now()
		defer func() { t.Logf("%s: %v, %d waits", what, time.Since(began), waits.Load()) }()
		from := waits.Load()
		awaitTrue(ctx, t, "waits end after "+what, func() bool {
			return t.Failed() || waits.Load() > from+2
		})
	}
	more("the start")
	for i, d := range r.tablets(ctx) {
		r.lead(ctx, d.TabletId, i%3)
	}
	more("moves of leaders")
	if err := db.CreateTable(ctx, percolator.TableSpec{ // the others exist
		Name: "cascade2", SplitKeys: []string{"aaw", "azw"},
	}); err != nil {
		t.Fatal(err)
	}
	more("a split")
	r.crash(2)
	more("a death")
	stop()
	waiters.Wait()
	others.Wait()
	// No work may be left for a node to finish when it stops: the last one has no quorum.
	if err := db.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
}
