package observer_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// The observed column of most tests, and a second one.
const table = "docs"

var (
	raw   = percolator.Column{Table: table, Name: "raw"}
	other = percolator.Column{Table: table, Name: "other"}
	out   = percolator.Column{Table: table, Name: "out"}
	poke  = percolator.Column{Table: table, Name: "poke"}
)

// quick shortens backoff and grace.
func quick(c *observer.Config) {
	c.FailureBase, c.FailureMax, c.Grace = time.Millisecond, 8*time.Millisecond, 20*time.Millisecond
	c.RetryMax = 10 * time.Millisecond
}

// one starts a node with one strong observer of raw.
func one(t *testing.T, fn percolator.ObserverFunc,
	opts ...percolator.ObserverOption) (*notifytest.Node, *notifytest.Cluster) {
	t.Helper()
	cluster := notifytest.NewCluster()
	return notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Observer: quick,
		Register: func(r *percolator.Registry) { r.Strong("reader", raw, fn, opts...) },
	}), cluster
}

func set(t *testing.T, n *notifytest.Node, row string, col percolator.Column) {
	t.Helper()
	err := n.DB.Transact(bounded(t, time.Minute),
		func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row, col, []byte("x"))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

func parkedWith(cluster *notifytest.Cluster, cell mvcc.Cell, text string,
	attempts uint32) func() bool {
	return func() bool {
		e, there := cluster.Notification(cell)
		return there && e.ParkedTS != 0 && e.Attempts == attempts && strings.Contains(e.Error, text)
	}
}

// TestFailingObserverParks: after MaxAttempts the notification stays, parked with the error; a
// newer write runs again.
func TestFailingObserverParks(t *testing.T) {
	var healed atomic.Bool
	var attempts sync.Map
	n, cluster := one(t, func(_ context.Context, _ *percolator.Tx,
		m percolator.Notification) error {
		if healed.Load() {
			return nil
		}
		attempts.Store(m.Attempt, true)
		return errors.New("the page is broken")
	}, percolator.MaxAttempts(3))
	set(t, n, "row", raw)
	cell := n.Cell(table, "row", raw.Name)
	notifytest.Eventually(t, time.Minute, "parked",
		parkedWith(cluster, cell, "the page is broken", 3))
	for i := range 3 {
		if _, ok := attempts.Load(i); !ok {
			t.Errorf("no run had attempt %d", i)
		}
	}
	notifytest.Eventually(t, time.Minute, "counted", func() bool {
		s := n.Stats("reader")
		return s.Failures == 3 && s.Parked == 1 && s.Commits == 0 && s.Runs == 3
	})
	if err := n.DB.WaitIdle(bounded(t, time.Minute)); err != nil {
		t.Errorf("a parked notification is not waited for: %v", err)
	}
	before := n.Scanners.Stats().Parked.Load()
	notifytest.Eventually(t, time.Minute, "a scanner sees it and leaves it alone", func() bool {
		return n.Scanners.Stats().Parked.Load() > before
	})
	if s := n.Stats("reader"); s.Runs != 3 {
		t.Errorf("%d runs after it was parked", s.Runs-3)
	}
	healed.Store(true)
	set(t, n, "row", raw)
	notifytest.Eventually(t, time.Minute, "the newer write runs", func() bool {
		return n.Stats("reader").Commits == 1 && cluster.Dirty() == 0
	})
}

// TestEveryWayToFail: panics, runtime.Goexit and deadlines count as failed runs, and other rows
// continue to run.
func TestEveryWayToFail(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func(ctx context.Context) error
		text string
	}{
		"panic": {func(context.Context) error { panic("observer bug") }, "panic: observer bug, at failure_test.go:"},
		"nil map": {func(context.Context) error {
			return countIn(nil)
		}, "nil map, at failure_test.go:"},
		"goexit": {func(context.Context) error { runtime.Goexit(); return nil }, "Goexit"},
		"deadline": {func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, "deadline of 30ms exceeded"},
		"late": {func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}, "deadline of 30ms exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			n, cluster := one(t, func(ctx context.Context, _ *percolator.Tx,
				m percolator.Notification) error {
				if m.Row == "good" {
					return nil
				}
				return c.fn(ctx)
			}, percolator.MaxAttempts(2), percolator.Deadline(30*time.Millisecond))
			set(t, n, "bad", raw)
			notifytest.Eventually(t, time.Minute, "parked",
				parkedWith(cluster, n.Cell(table, "bad", raw.Name), c.text, 2))
			found, _ := cluster.Notification(n.Cell(table, "bad", raw.Name))
			if strings.Contains(found.Error, "(*run)") || strings.Contains(found.Error, "runtime/") {
				t.Errorf("the error has frames of the framework:\n%s", found.Error)
			}
			set(t, n, "good", raw)
			notifytest.Eventually(t, time.Minute, "others run", func() bool {
				return n.Stats("reader").Commits == 1
			})
			notifytest.Eventually(t, time.Minute, "slots are given back", func() bool {
				s := n.Stats("reader")
				return s.Running == 0 && s.Stuck == 0
			})
		})
	}
}

// TestBlockedForEver: functions that ignore their context hold only their own slots, which are
// replaced: with as many stuck runs as the pool and the observer have slots, the other rows still
// run. Stuck runs are logged and counted.
func TestBlockedForEver(t *testing.T) {
	release := make(chan struct{})
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Observer: func(c *observer.Config) {
			quick(c)
			c.Workers = 2
		},
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(_ context.Context, tx *percolator.Tx,
				m percolator.Notification) error {
				if strings.HasPrefix(m.Row, "stuck") {
					<-release
				}
				tx.Set(m.Row, out, []byte("done"))
				return nil
			}, percolator.Deadline(20*time.Millisecond), percolator.Concurrency(2),
				percolator.MaxAttempts(5))
		},
	})
	set(t, n, "stuck-1", raw)
	set(t, n, "stuck-2", raw)
	notifytest.Eventually(t, time.Minute, "both reported", func() bool {
		s := n.Stats("reader")
		one, _ := cluster.Notification(n.Cell(table, "stuck-1", raw.Name))
		return s.Stuck == 2 && s.Failures == 2 && one.Attempts == 1 &&
			strings.Contains(one.Error, "deadline")
	})
	for _, row := range []string{"a", "b", "c"} {
		set(t, n, row, raw)
	}
	// A run commits a moment before it ends.
	notifytest.Eventually(t, time.Minute, "others go on", func() bool {
		s := n.Stats("reader")
		return s.Commits == 3 && s.Running == 2
	})
	if s := n.Stats("reader"); s.Runs != 5 {
		t.Errorf("a stuck cell runs again beside itself: %+v", s)
	}
	close(release)
	notifytest.Eventually(t, time.Minute, "they return, and run again at last", func() bool {
		s := n.Stats("reader")
		return s.Commits == 5 && s.Stuck == 0 && cluster.Dirty() == 0
	})
}

// TestStuckBeyondTheBound: at most MaxStuck slots are replaced.
func TestStuckBeyondTheBound(t *testing.T) {
	release := make(chan struct{})
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: notifytest.NewCluster(), Scanners: 2,
		Observer: func(c *observer.Config) { quick(c); c.Workers, c.MaxStuck = 1, 2 },
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				<-release
				return nil
			}, percolator.Deadline(10*time.Millisecond), percolator.Concurrency(8),
				percolator.MaxAttempts(1000))
		},
	})
	for _, row := range []string{"a", "b", "c", "d", "e"} {
		set(t, n, row, raw)
	}
	notifytest.Eventually(t, time.Minute, "one slot and two more", func() bool {
		return n.Stats("reader").Stuck == 3
	})
	scans := n.Scanners.Stats().Turns.Load()
	notifytest.Eventually(t, time.Minute, "scanners turn", func() bool {
		return n.Scanners.Stats().Turns.Load() > scans+2
	})
	if s := n.Stats("reader"); s.Running != 3 {
		t.Errorf("%d run concurrently, want 3", s.Running)
	}
	close(release)
	notifytest.Eventually(t, time.Minute, "all run in the end", func() bool {
		return n.Stats("reader").Commits == 5
	})
}

// TestConflictsAreNotAttempts: runs that conflict repeatedly are repeated and never counted as
// failed.
func TestConflictsAreNotAttempts(t *testing.T) {
	var runs atomic.Int32
	n, cluster := one(t, func(ctx context.Context, tx *percolator.Tx,
		m percolator.Notification) error {
		if runs.Add(1) <= 20 { // another transaction commits first
			err := percolator.DBFrom(ctx).Transact(ctx,
				func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(m.Row, out, []byte("faster"))
					return nil
				})
			if err != nil {
				return err
			}
		}
		if m.Attempt != 0 {
			return errors.New("counted")
		}
		tx.Set(m.Row, out, []byte("mine"))
		return nil
	}, percolator.MaxAttempts(2))
	set(t, n, "row", raw)
	notifytest.Eventually(t, time.Minute, "committed", func() bool {
		return cluster.Dirty() == 0
	})
	n.WaitIdle(t)
	if s := n.Stats("reader"); s.Conflicts != 20 || s.Commits != 1 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStop: running invocations finish, queued ones stay dirty, and a run that does not end is
// reported by name.
func TestStop(t *testing.T) {
	inside, release := make(chan struct{}, 8), make(chan struct{})
	n, cluster := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		inside <- struct{}{}
		<-release
		return nil
	}, percolator.Concurrency(1))
	set(t, n, "a", raw)
	set(t, n, "b", raw)
	<-inside
	notifytest.Eventually(t, time.Minute, "the other is queued", func() bool {
		return n.Stats("reader").Queued == 1
	})
	stopped := make(chan error, 1)
	go func() { stopped <- n.Dispatcher.Stop(bounded(t, time.Minute)) }()
	notifytest.Eventually(t, time.Minute, "what is queued is let go", func() bool {
		return n.Stats("reader").Queued == 0
	})
	select {
	case err := <-stopped:
		t.Fatalf("Stop did not wait: %v", err)
	default:
	}
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if s := n.Stats("reader"); s.Commits != 1 || s.Runs != 1 {
		t.Errorf("%+v", s)
	}
	if got := cluster.Dirty(); got != 1 {
		t.Errorf("%d cells dirty, want the queued one", got)
	}
}

func TestStopGivesUp(t *testing.T) {
	inside, release := make(chan struct{}, 8), make(chan struct{})
	defer close(release)
	n, _ := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		inside <- struct{}{}
		<-release
		return nil
	})
	set(t, n, "a", raw)
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.Dispatcher.Stop(ctx); !errors.Is(err, observer.ErrStillRunning) ||
		!strings.Contains(err.Error(), "reader 1") {
		t.Errorf("Stop: %v", err)
	}
}

// countIn panics if the map is nil.
func countIn(m map[string]int) error {
	m["a"]++
	return nil
}
