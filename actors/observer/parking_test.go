package observer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// TestOnParked: the function is called before a notification is parked, with its error, and may
// write; while the function fails, the notification is not parked and its row runs again.
func TestOnParked(t *testing.T) {
	var calls, runs atomic.Int32
	dead := percolator.Column{Table: table, Name: "dead"}
	n, cluster := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		runs.Add(1)
		return errors.New("the page is broken")
	}, percolator.MaxAttempts(2), percolator.OnParked(
		func(ctx context.Context, p percolator.Parked) error {
			switch calls.Add(1) {
			case 1:
				return errors.New("the pager is down")
			case 2:
				panic("the pager panics")
			}
			return percolator.DBFrom(ctx).Transact(ctx,
				func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(p.Row, dead, []byte(p.Observer+": "+p.Err.Error()))
					return nil
				})
		}))
	set(t, n, "row", raw)
	cell := n.Cell(table, "row", raw.Name)
	notifytest.Eventually(t, time.Minute, "parked", func() bool {
		e, there := cluster.Notification(cell)
		return there && e.ParkedTS != 0
	})
	if calls.Load() != 3 || runs.Load() != 4 {
		t.Fatalf("PARKED-UNHEARD: after %d calls, of which two have failed, and %d runs", calls.Load(),
			runs.Load())
	}
	ctx := bounded(t, time.Minute)
	s, err := n.DB.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, _, err := s.Get(ctx, "row", dead); err != nil || string(v) != "reader: the page is broken" {
		t.Errorf("the dead-letter row is %q, %v", v, err)
	}
	// The end of a run is counted after its parking is recorded.
	notifytest.Eventually(t, time.Minute, "1 parked after 4 failures", func() bool {
		s := n.Stats("reader")
		return s.Parked == 1 && s.Failures == 4
	})
}

// TestOnParkedFailureIsRecorded: while the function fails, the notification's error says so.
func TestOnParkedFailureIsRecorded(t *testing.T) {
	n, cluster := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		return errors.New("the page is broken")
	}, percolator.MaxAttempts(1), percolator.OnParked(
		func(context.Context, percolator.Parked) error { return errors.New("the pager is down") }))
	set(t, n, "row", raw)
	cell := n.Cell(table, "row", raw.Name)
	notifytest.Eventually(t, time.Minute, "failed again and again", func() bool {
		e, there := cluster.Notification(cell)
		return there && e.ParkedTS == 0 && e.Attempts > 3 &&
			strings.Contains(e.Error, "the page is broken") && strings.Contains(e.Error, "the pager is down")
	})
}
