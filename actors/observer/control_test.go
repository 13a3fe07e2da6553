package observer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// order delivers the catalogue's state of "reader" to the node's dispatcher.
func order(t *testing.T, n *notifytest.Node, info *pb.ObserverInfo) {
	t.Helper()
	info.Name = "reader"
	if err := n.Dispatcher.Control(bounded(t, time.Minute),
		[]*pb.ObserverInfo{info, {Name: "nobody"}}); err != nil {
		t.Fatal(err)
	}
}

// gate is an observer whose runs block until they are released, and that counts concurrent runs.
type gate struct {
	pass          chan struct{}
	running, most atomic.Int64
	ran           atomic.Int64
}

func (g *gate) run(ctx context.Context, _ *percolator.Tx, _ percolator.Notification) error {
	now := g.running.Add(1)
	defer g.running.Add(-1)
	for most := g.most.Load(); now > most &&
		!g.most.CompareAndSwap(most, now); most = g.most.Load() {
	}
	select {
	case <-g.pass:
		g.ran.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestPauseAndResume: a paused observer starts no run, its runs finish, and it holds no queue, no
// advisory lock and no walk. After it is resumed every change runs.
func TestPauseAndResume(t *testing.T) {
	g := &gate{pass: make(chan struct{})}
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Observer: quick,
		Scanner: func(c *scanner.Config) { c.MinAge = -1 },
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, g.run, percolator.Concurrency(2))
			r.Strong("bystander", other,
				func(context.Context, *percolator.Tx, percolator.Notification) error {
					return nil
				})
		},
	})
	const rows = 20
	for i := range rows {
		set(t, n, fmt.Sprint(i), raw)
	}
	notifytest.Eventually(t, time.Minute, "two run, the others wait", func() bool {
		s := n.Stats("reader")
		return g.running.Load() == 2 && s.Queued > 0
	})
	order(t, n, &pb.ObserverInfo{Paused: true})
	if s := n.Stats("reader"); !s.Paused || s.Queued != 0 || s.Waiting != 0 || s.Running != 2 {
		t.Errorf("paused: %+v", s)
	}
	g.pass <- struct{}{}
	g.pass <- struct{}{}
	notifytest.Eventually(t, time.Minute, "runs that went on have ended", func() bool {
		s := n.Stats("reader")
		return s.Commits == 2 && s.Running == 0
	})
	cell := n.Cell(table, "0", raw.Name)
	answers, err := n.Dispatcher.Submit(bounded(t, time.Minute),
		[]notify.Dirty{{Cell: cell, Held: true}})
	if err != nil || answers[0] != notify.Paused {
		t.Errorf("a cell of a paused observer: %v, %v", answers, err)
	}
	for i := range rows { // changes during the pause
		set(t, n, fmt.Sprint(i), raw)
		set(t, n, fmt.Sprint(i), other)
	}
	notifytest.Eventually(t, time.Minute, "others go on", func() bool {
		return n.Stats("bystander").Commits >= rows
	})
	found := n.Scanners.Stats().Turns.Load()
	notifytest.Eventually(t, time.Minute, "scanners turn", func() bool {
		return n.Scanners.Stats().Turns.Load() > found+4
	})
	if s := n.Stats("reader"); s.Running != 0 || s.Queued != 0 || s.Runs != 2 {
		t.Errorf("paused, and yet: %+v", s)
	}
	notifytest.Eventually(t, time.Minute, "the row's advisory lock is released", func() bool {
		granted, err := n.Lockd.TryLock(bounded(t, time.Minute), 1<<60, time.Second,
			notify.LockKey(cell))
		return err == nil && granted[0]
	})
	n.Lockd.Unlock(1<<60, notify.LockKey(cell))
	close(g.pass)
	order(t, n, &pb.ObserverInfo{})
	n.WaitIdle(t)
	if cluster.Dirty() != 0 || g.ran.Load() < rows {
		t.Errorf("after it was resumed: %d dirty, %d ran", cluster.Dirty(), g.ran.Load())
	}
}

// TestPauseForgetsBackoff: pausing also releases cells that wait for their backoff; their attempts
// are in the notification.
func TestPauseForgetsBackoff(t *testing.T) {
	var healed atomic.Bool
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Observer: func(c *observer.Config) {
			c.FailureBase, c.FailureMax = time.Hour, time.Hour
		},
		Register: func(r *percolator.Registry) {
			fn := func(context.Context, *percolator.Tx, percolator.Notification) error {
				if healed.Load() {
					return nil
				}
				return errors.New("not yet")
			}
			r.Strong("reader", raw, fn)
			r.Strong("bystander", other, fn)
		},
	})
	for i := range 9 {
		set(t, n, fmt.Sprint(i), raw)
		set(t, n, fmt.Sprint(i), other)
	}
	notifytest.Eventually(t, time.Minute, "all wait for an hour", func() bool {
		return n.Stats("reader").Waiting == 9 && n.Stats("bystander").Waiting == 9
	})
	order(t, n, &pb.ObserverInfo{Paused: true})
	if s, b := n.Stats("reader"), n.Stats("bystander"); s.Waiting != 0 || b.Waiting != 9 {
		t.Errorf("%d of the paused one and %d of the other wait", s.Waiting, b.Waiting)
	}
	healed.Store(true)
	order(t, n, &pb.ObserverInfo{})
	notifytest.Eventually(t, time.Minute, "the scans find them", func() bool {
		return n.Stats("reader").Commits == 9
	})
	if b := n.Stats("bystander"); b.Waiting != 9 {
		t.Errorf("%d of the other wait", b.Waiting)
	}
}

// TestLimitAtOnce: a limit, lower or higher, is in force when Control returns; 0 restores the
// registered one.
func TestLimitAtOnce(t *testing.T) {
	g := &gate{pass: make(chan struct{})}
	n, cluster := one(t, g.run, percolator.Concurrency(3))
	for i := range 60 {
		set(t, n, fmt.Sprint(i), raw)
	}
	at := func(limit int64) {
		t.Helper()
		notifytest.Eventually(t, time.Minute, fmt.Sprint(limit, " run"), func() bool {
			return g.running.Load() == limit
		})
		if s := n.Stats("reader"); s.Limit != uint32(limit) || s.Running > uint32(limit) {
			t.Errorf("%+v", s)
		}
	}
	at(3)
	order(t, n, &pb.ObserverInfo{Limit: 12})
	at(12)
	order(t, n, &pb.ObserverInfo{Limit: 1})
	for range 12 { // running invocations finish
		g.pass <- struct{}{}
	}
	at(1)
	g.most.Store(1)
	for range 10 {
		g.pass <- struct{}{}
	}
	if most := g.most.Load(); most != 1 {
		t.Errorf("%d at once with a limit of 1", most)
	}
	order(t, n, &pb.ObserverInfo{})
	at(3)
	close(g.pass)
	notifytest.Eventually(t, time.Minute, "all have run", func() bool {
		return cluster.Dirty() == 0
	})
}

// TestEnough: the number of cells that the dispatcher can use follows from the batch size, the
// limit in force, and whether there is a choice.
func TestEnough(t *testing.T) {
	low := func(percolator.Notification) int { return 0 }
	for _, c := range []struct {
		options     []percolator.ObserverOption
		batch       bool
		limit, want int
	}{
		{options: []percolator.ObserverOption{}, want: 2 * observer.DefaultWorkers},
		{options: []percolator.ObserverOption{percolator.Concurrency(1)}, want: 1 + 4},
		{options: []percolator.ObserverOption{percolator.Concurrency(8)}, want: 8 + 8},
		{options: []percolator.ObserverOption{percolator.Concurrency(8)}, limit: 20, want: 20 + 20},
		{
			options: []percolator.ObserverOption{percolator.Concurrency(8), percolator.Priority(low)},
			want:    8 + 256,
		},
		{
			options: []percolator.ObserverOption{percolator.Concurrency(1), percolator.Batch(50)},
			batch:   true, want: 50 + 200,
		},
		{
			options: []percolator.ObserverOption{percolator.Concurrency(8), percolator.Batch(50)},
			batch:   true, want: 400 + 400,
		},
	} {
		n := notifytest.Start(t, notifytest.NodeConfig{
			Cluster: notifytest.NewCluster(), ID: 1,
			Register: func(r *percolator.Registry) {
				if c.batch {
					r.StrongBatch("reader", raw, func(context.Context, *percolator.Tx,
						[]percolator.Notification) error {
						return nil
					}, c.options...)
					return
				}
				r.Strong("reader", raw, func(context.Context, *percolator.Tx,
					percolator.Notification) error {
					return nil
				}, c.options...)
			},
		})
		order(t, n, &pb.ObserverInfo{Limit: uint32(c.limit)})
		if got := n.Dispatcher.Targets()[0].Enough; got != c.want {
			t.Errorf("%+v: %d are enough, want %d", c, got, c.want)
		}
	}
}

// TestAttemptsSurviveTheProcess: failed runs are counted in the notification. A process that ends
// halfway does not reset the count; otherwise a bad row would run forever on a node that is
// restarted often.
func TestAttemptsSurviveTheProcess(t *testing.T) {
	const most = 2
	cluster, attempts := notifytest.NewCluster(), make(chan int, 2*most)
	start := func(id uint64, backoff time.Duration) *notifytest.Node {
		return notifytest.Start(t, notifytest.NodeConfig{
			Cluster: cluster, ID: id, Scanners: 2, NoLocks: true, Hints: scanner.HintsOff,
			Observer: func(c *observer.Config) { c.FailureBase, c.FailureMax = backoff, backoff },
			Register: func(r *percolator.Registry) {
				r.Strong("reader", raw, func(_ context.Context, _ *percolator.Tx,
					n percolator.Notification) error {
					attempts <- n.Attempt
					return errors.New("bad row")
				}, percolator.MaxAttempts(most))
			},
		})
	}
	one := start(1, time.Hour)
	set(t, one, "row", raw)
	notifytest.Eventually(t, time.Minute, "it has failed once and waits for an hour",
		func() bool {
			return one.Stats("reader").Waiting == 1
		})
	ctx := bounded(t, time.Minute)
	if err := errors.Join(one.Scanners.Stop(ctx), one.Dispatcher.Stop(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := <-attempts; got != 0 {
		t.Fatalf("the first run of all has attempt %d", got)
	}
	two := start(2, time.Millisecond)
	if got := <-attempts; got != 1 {
		t.Fatalf("the first run of the second process has attempt %d, want 1", got)
	}
	notifytest.Eventually(t, time.Minute, "parked",
		parkedWith(cluster, two.Cell(table, "row", raw.Name), "bad row", most))
	notifytest.Eventually(t, time.Minute, "counted", func() bool {
		return two.Stats("reader").Parked == 1
	})
	if s := two.Stats("reader"); s.Runs != 1 {
		t.Errorf("the second process: %+v", s)
	}
}

// TestOthersKeepASlot: observers whose functions never return use up their own limits and the
// replaceable slots of the pool. Their statistics show it, and every other observer still runs.
func TestOthersKeepASlot(t *testing.T) {
	release := make(chan struct{})
	cluster := notifytest.NewCluster()
	const bad = 3
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Observer: func(c *observer.Config) {
			quick(c)
			c.Workers, c.MaxStuck = 4, 4
		},
		Register: func(r *percolator.Registry) {
			for i := range bad {
				col := percolator.Column{Table: table, Name: fmt.Sprint("bad", i)}
				r.Strong(fmt.Sprint("bad", i), col,
					func(context.Context, *percolator.Tx, percolator.Notification) error {
						<-release
						return nil
					}, percolator.Deadline(10*time.Millisecond), percolator.Concurrency(4),
					percolator.MaxAttempts(100))
			}
			r.Strong("good", raw, func(_ context.Context, tx *percolator.Tx,
				m percolator.Notification) error {
				tx.Set(m.Row, out, []byte("done"))
				return nil
			})
		},
	})
	t.Cleanup(func() { close(release) })
	for i := range 30 {
		for b := range bad {
			set(t, n, fmt.Sprint(i), percolator.Column{Table: table, Name: fmt.Sprint("bad", b)})
		}
	}
	stuck := func() (all int) {
		for b := range bad {
			all += int(n.Stats(fmt.Sprint("bad", b)).Stuck)
		}
		return all
	}
	notifytest.Eventually(t, time.Minute, "all that may be stuck is", func() bool {
		return stuck() >= 8
	})
	for i := range 50 {
		set(t, n, fmt.Sprint(i), raw)
	}
	notifytest.Eventually(t, time.Minute, "the good one runs", func() bool {
		return n.Stats("good").Commits == 50
	})
	if got := stuck(); got > 4+4+bad {
		t.Errorf("%d runs are stuck, want at most the pool, its replaced slots and one per observer",
			got)
	}
}

// TestStuckObserverDoesNotStopScans: with hints off, an observer that fills its window in every
// scanner does not prevent scans from finding another observer's cells.
func TestStuckObserverDoesNotStopScans(t *testing.T) {
	g := &gate{pass: make(chan struct{})}
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Hints: scanner.HintsOff, Observer: quick,
		Scanner: func(c *scanner.Config) { c.Window = 4 },
		Register: func(r *percolator.Registry) {
			r.Strong("slow", other, g.run)
			r.Strong("reader", raw, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return nil
			})
		},
	})
	t.Cleanup(func() { close(g.pass) })
	for i := range 200 {
		set(t, n, fmt.Sprint(i), other)
	}
	notifytest.Eventually(t, time.Minute, "both windows are full", func() bool {
		s := n.Stats("slow")
		return s.Running+s.Queued == 8
	})
	for i := range 20 {
		set(t, n, fmt.Sprint(i), raw)
	}
	notifytest.Eventually(t, time.Minute, "the other one is found", func() bool {
		return n.Stats("reader").Commits == 20
	})
}

// TestControlAfterTheEnd: Control fails once the dispatcher has stopped.
func TestControlAfterTheEnd(t *testing.T) {
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	d, err := observer.Spawn(system, observer.Config{Client: observer.NewClient(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if d.Paused(notify.TargetOf(mvcc.Cell{Table: 16})) {
		t.Error("a column without an observer is paused")
	}
	if err := d.Stop(bounded(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := d.Control(bounded(t, time.Minute), nil); err == nil ||
		!strings.Contains(err.Error(), "stopped") {
		t.Errorf("control after the end: %v", err)
	}
}
