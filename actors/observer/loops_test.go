package observer_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// loopRuns is LoopRuns in these tests.
const loopRuns = 20

// adds registers an observer that adds one to a column of the row until the column is "stop", and
// counts its runs.
func adds(r *percolator.Registry, name, from, to string, runs *atomic.Int64) {
	r.Strong(name, percolator.Column{Table: "t", Name: from},
		func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			runs.Add(1)
			value, _, err := tx.Get(ctx, n.Row, n.Column)
			if err != nil || string(value) == "stop" {
				return err
			}
			i, err := strconv.Atoi(string(value))
			tx.Set(n.Row, percolator.Column{Table: "t", Name: to}, []byte(strconv.Itoa(i+1)))
			return err
		})
}

func setColumn(ctx context.Context, t *testing.T, db *percolator.DB, row, column, value string) {
	t.Helper()
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row, percolator.Column{Table: "t", Name: column}, []byte(value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// cycles returns the cycles of all observers' rows.
func cycles(ctx context.Context, t *testing.T, n *notifytest.Node) (found []string) {
	t.Helper()
	all, err := n.Dispatcher.Rows(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range all {
		for _, r := range rows {
			if r.Cycle != "" {
				found = append(found, r.Cycle)
			}
		}
	}
	return found
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestLoopsAreSlowedDown: a row that triggers itself, alone or through another observer, runs with
// growing pauses but continues; an outside change that ends the loop runs. Catches
// BROKEN=loop_unslowed.
func TestLoopsAreSlowedDown(t *testing.T) {
	t.Parallel()
	for name, loop := range map[string]struct {
		register func(*percolator.Registry, *atomic.Int64)
		cycle    string
	}{
		"self": {func(r *percolator.Registry, runs *atomic.Int64) {
			adds(r, "normalise", "a", "a", runs)
		}, "normalise → normalise"},
		"two": {func(r *percolator.Registry, runs *atomic.Int64) {
			adds(r, "ping", "a", "b", runs)
			adds(r, "pong", "b", "a", &atomic.Int64{})
		}, "ping → pong → ping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			ctx := bounded(t, 30*time.Second)
			n := notifytest.Start(t, notifytest.NodeConfig{
				Cluster: notifytest.NewCluster(), Register: func(r *percolator.Registry) { loop.register(r, &runs) },
				Observer: func(c *observer.Config) { c.LoopRuns = loopRuns },
			})
			setColumn(ctx, t, n.DB, "row", "a", "1")
			await(t, "the loop is found", func() bool { return len(cycles(ctx, t, n)) > 0 })
			if found := cycles(ctx, t, n); found[0] != loop.cycle {
				t.Errorf("UNNAMED: %q", found)
			}
			// The pauses are 0.1, 0.2, 0.4 and 0.8 s: no further run within 1.4 s.
			began, before := time.Now(), runs.Load()
			await(t, "DROPPED: two runs more", func() bool { return runs.Load() >= before+2 })
			await(t, "1.4 s", func() bool { return time.Since(began) > 1400*time.Millisecond })
			if more := runs.Load() - before; more > 4 {
				t.Fatalf("UNSLOWED: %d runs in %v", more, time.Since(began))
			}
			setColumn(ctx, t, n.DB, "row", "a", "stop")
			await(t, "DROPPED: the last run", func() bool {
				rows, err := n.Dispatcher.Rows(ctx)
				return err == nil && n.Dispatcher.Stats()[0].Waiting == 0 && len(rows[0]) == 0
			})
		})
	}
}

// TestHotRowsAreNotSlowedDown: rows changed often by clients and by runs for other rows are not
// loops, whatever they write. Catches BROKEN=loop_blind.
func TestHotRowsAreNotSlowedDown(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	ctx := bounded(t, 30*time.Second)
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: notifytest.NewCluster(), Observer: func(c *observer.Config) { c.LoopRuns = loopRuns },
		Register: func(r *percolator.Registry) {
			adds(r, "copy", "a", "b", &runs)
			r.Strong("sum", percolator.Column{Table: "t", Name: "b"},
				func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
					tx.Set("total", percolator.Column{Table: "t", Name: "last"}, []byte(n.Row))
					return nil
				})
			r.Strong("total", percolator.Column{Table: "t", Name: "last"},
				func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		},
	})
	for i := range 10 * loopRuns {
		setColumn(ctx, t, n.DB, "row", "a", strconv.Itoa(i))
		setColumn(ctx, t, n.DB, "row"+strconv.Itoa(i), "a", strconv.Itoa(i))
		await(t, "SLOWED: its run", func() bool { return n.Stats("copy").Commits > uint64(i) })
	}
	if found := cycles(ctx, t, n); len(found) > 0 {
		t.Errorf("SLOWED: %q", found)
	}
	for _, name := range []string{"copy", "sum", "total"} {
		if s := n.Stats(name); s.Skipped > s.Runs { // a delayed run is counted as skipped
			t.Errorf("SLOWED: %+v", s)
		}
	}
}
