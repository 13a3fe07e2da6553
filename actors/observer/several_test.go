package observer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// ackOf returns the notify cell of a further observer of the row's column.
func ackOf(n *notifytest.Node, row, observer string) mvcc.Cell {
	return notify.AckCell(n.Cell(table, row, raw.Name), observer)
}

// TestSeveralObserversOfAColumn: each observer of a column sees every change once, and none is
// delayed by another that is stuck, paused or parked; a replay runs only its observer.
func TestSeveralObserversOfAColumn(t *testing.T) {
	const rows = 12
	stuck, faulty := make(chan struct{}), atomic.Bool{}
	faulty.Store(true)
	nothing := func(context.Context, *percolator.Tx, percolator.Notification) error { return nil }
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Observer: quick, Register: func(r *percolator.Registry) {
			r.Strong("stuck", raw, func(context.Context, *percolator.Tx, percolator.Notification) error {
				<-stuck
				return nil
			}, percolator.Concurrency(2))
			r.Strong("single", raw, nothing)
			r.StrongBatch("batched", raw, func(context.Context, *percolator.Tx,
				[]percolator.Notification) error {
				return nil
			}, percolator.Batch(5))
			r.Strong("faulty", raw, func(context.Context, *percolator.Tx, percolator.Notification) error {
				if faulty.Load() {
					return errors.New("faulty")
				}
				return nil
			}, percolator.MaxAttempts(1))
			r.Strong("paused", raw, nothing)
		},
	})
	control := func(paused bool) {
		t.Helper()
		err := n.Dispatcher.Control(bounded(t, time.Minute),
			[]*pb.ObserverInfo{{Name: "paused", Paused: paused}})
		if err != nil {
			t.Fatal(err)
		}
	}
	commits := func(name string, want uint64) {
		t.Helper()
		notifytest.Eventually(t, time.Minute, fmt.Sprintf("%s has committed %d runs", name, want),
			func() bool { return n.Stats(name).Commits == want })
	}
	release := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(release)
	control(true)
	for i := range rows {
		set(t, n, fmt.Sprint(i), raw)
	}
	notifytest.Eventually(t, time.Minute, "each change has been run for", func() bool {
		return n.Stats("single").Commits+n.Stats("batched").Commits >= rows
	})
	for i := range rows {
		if m, there := cluster.Notification(ackOf(n, fmt.Sprint(i), "paused")); !there || m.ParkedTS != 0 {
			t.Fatalf("CLEARED-FOR-ALL: row %d: the notification of the paused observer is %+v, %v", i, m, there)
		}
	}
	commits("single", rows)
	commits("batched", rows)
	for i := range rows {
		notifytest.Eventually(t, time.Minute, "parked for one observer",
			parkedWith(cluster, ackOf(n, fmt.Sprint(i), "faulty"), "faulty", 1))
		for _, name := range []string{"single", "batched"} {
			if m, there := cluster.Notification(ackOf(n, fmt.Sprint(i), name)); there {
				t.Errorf("row %d: %s has run, and its notification is left: %+v", i, name, m)
			}
		}
	}
	release()
	control(false)
	commits("stuck", rows)
	commits("paused", rows)
	faulty.Store(false)
	before := n.Stats("single").Runs + n.Stats("batched").Runs + n.Stats("stuck").Runs
	var cells []mvcc.Cell
	for i := range rows {
		cells = append(cells, ackOf(n, fmt.Sprint(i), "faulty"))
	}
	if err := n.Client.Replay(bounded(t, time.Minute), 0, cells); err != nil {
		t.Fatal(err)
	}
	commits("faulty", rows)
	n.WaitIdle(t)
	after := n.Stats("single").Runs + n.Stats("batched").Runs + n.Stats("stuck").Runs
	if after != before || cluster.Dirty() != 0 {
		t.Errorf("REPLAYED-ANOTHER: %d runs of other observers by the replay of one; %d notifications left",
			after-before, cluster.Dirty())
	}
}

// TestSeveralWeakObservers: a weak notification, alone or with a write, reaches all observers of
// its column on whatever node they run, and a commit's effects include those of all of them.
func TestSeveralWeakObservers(t *testing.T) {
	cluster := notifytest.NewCluster()
	release := make(chan struct{})
	node := func(id uint64, name string, wait <-chan struct{}) *notifytest.Node {
		return notifytest.Start(t, notifytest.NodeConfig{
			Cluster: cluster, ID: id, Observer: quick, Register: func(r *percolator.Registry) {
				r.Weak(name, poke, func(_ context.Context, tx *percolator.Tx, m percolator.Notification) error {
					<-wait
					tx.Set(m.Row, percolator.Column{Table: table, Name: name}, []byte("poked"))
					return nil
				})
			},
		})
	}
	open := make(chan struct{})
	close(open)
	first, second := node(1, "first", open), node(2, "second", release)
	ctx := bounded(t, 30*time.Second)
	var last percolator.Timestamp
	for i, with := range []bool{false, true} {
		tx, err := first.DB.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx.Notify(fmt.Sprint(i), poke)
		if with {
			tx.Set("written", other, []byte("x"))
		}
		if last, err = tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	notifytest.Eventually(t, time.Minute, "the first has run", func() bool {
		return first.Stats("first").Commits >= 2
	})
	early, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := first.DB.WaitFor(early, last); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("EFFECT-MISSED: the second observer has yet to run, and WaitFor returned %v", err)
	}
	close(release)
	if _, err := first.DB.WaitFor(ctx, last); err != nil {
		t.Fatal(err)
	}
	s, err := first.DB.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		for _, name := range []string{"first", "second"} {
			column := percolator.Column{Table: table, Name: name}
			if _, ok, err := s.Get(ctx, fmt.Sprint(i), column); !ok || err != nil {
				t.Errorf("row %d: %s has not run: %v", i, name, err)
			}
		}
	}
	if err := second.DB.WaitIdle(ctx); err != nil || cluster.Dirty() != 0 {
		t.Errorf("%d notifications are left: %v", cluster.Dirty(), err)
	}
}

// TestEntryOfALaterObserver: a process that has not seen that its observer was retired, and that
// the entries at the observed cells belong to a later observer, removes none of them.
func TestEntryOfALaterObserver(t *testing.T) {
	n, cluster := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
	cluster.Look(func(v *mvcctest.MemView) {
		column := mvcc.ObservedColumn{Table: n.Tables[table], Column: raw.Name}
		v.Observers[column] = []string{"later"}
	})
	set(t, n, "row", raw)
	// It runs, and then finds that it has already run.
	notifytest.Eventually(t, time.Minute, "found clean", func() bool { return n.Stats("reader").Skipped > 0 })
	if m, there := cluster.Notification(n.Cell(table, "row", raw.Name)); !there || m.ParkedTS != 0 {
		t.Errorf("CLEARED-ANOTHERS: the notification of the later observer is %+v, %v", m, there)
	}
}
