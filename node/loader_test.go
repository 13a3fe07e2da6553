package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/node"
)

// load writes rows [from, to) through a loader with a bound on pending notifications.
func load(ctx context.Context, db *percolator.DB, backlog, from, to int) error {
	l := db.Loader(percolator.LoaderConfig{Workers: 8, Queue: 8, Backlog: backlog})
	for i := from; i < to; i++ {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(rowOf(i), input, []byte("x"))
			return nil
		})
		if err != nil {
			_ = l.Close()
			return err
		}
	}
	return l.Close()
}

// slowly takes some milliseconds for each row.
func slowly(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	return counts(ctx, tx, n)
}

// TestLoaderIsSlowedByBacklog: a fast loader never exceeds its bound of pending notifications for a
// slow observer, apart from its batches in flight; without a bound it does. A paused observer
// delays no loader, and its pending notifications are reported.
func TestLoaderIsSlowedByBacklog(t *testing.T) {
	t.Parallel()
	const most, rows, slack = 100, 600, 100
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("counter", input, slowly, percolator.Concurrency(2))
		}
	})
	loaded := make(chan error, 1)
	go func() { loaded <- load(within(t, 4*time.Minute), n.DB(), most, 0, rows) }()
	highest := uint64(0)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for busy := true; busy; {
		select {
		case err := <-loaded:
			if err != nil {
				t.Fatal(err)
			}
			busy = false
		case <-tick.C:
			highest = max(highest, stateOf(t, n, "counter").Notifications)
		}
	}
	if highest > most+slack || highest < most/4 {
		t.Errorf("%d notifications waited, with a bound of %d", highest, most)
	}
	t.Logf("at most %d waited", highest)
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, times(1))
	if err := load(within(t, time.Minute), n.DB(), -1, 0, rows); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, n, "counter").Notifications; got < most+slack {
		t.Errorf("without a bound only %d wait: this test shows nothing", got)
	}
	waitIdle(t, n)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(true)})
	if err := load(within(t, time.Minute), n.DB(), most, 0, rows); err != nil {
		t.Fatalf("held up by a paused observer: %v", err)
	}
	p, err := n.DB().Pending(within(t, time.Minute))
	if err != nil || p.Runnable != 0 || p.Held != rows || len(p.Observers) != 1 ||
		!p.Observers[0].Paused || p.Observers[0].Oldest == 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestLoaderInsideObserver: loads of an observer are never delayed: they may be what empties the
// queue.
func TestLoaderInsideObserver(t *testing.T) {
	next := percolator.Column{Table: "pages", Name: "next"}
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("fan", input, func(ctx context.Context, _ *percolator.Tx,
				m percolator.Notification) error {
				l := percolator.DBFrom(ctx).Loader(percolator.LoaderConfig{Backlog: 1, Workers: 2})
				for i := range 5 {
					err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
						tx.Set(fmt.Sprint(m.Row, "/", i), next, []byte("x"))
						return nil
					})
					if err != nil {
						_ = l.Close()
						return err
					}
				}
				return l.Close()
			})
			r.Strong("counter", next, counts)
		}
	})
	write(t, n.DB(), 0, 50)
	waitIdle(t, n)
	if s := stateOf(t, n, "fan"); s.Status.Commits != 50 || s.Status.Failures != 0 {
		t.Errorf("the observer is %v, want 50 commits and no failure", s)
	}
	if s := stateOf(t, n, "counter"); s.Status.Commits < 250 {
		t.Errorf("the observer is %v, want 250 commits or more", s)
	}
}
