package observer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// slowLink delays some operations, repeats some, and loses replies.
func slowLink(*pb.TabletRequest) txntest.Fault {
	var f txntest.Fault
	switch rand.IntN(20) {
	case 0:
		f.Reply = true
	case 1:
		f.Twice = true
	case 2, 3, 4:
		f.Before = func(ctx context.Context) {
			_ = txn.Sleep(ctx, rand.N(4*time.Millisecond))
		}
	}
	return f
}

// TestWaitForWaitsForTheLastEffect: when WaitFor returns, all effects of the commit through five
// observers are visible, strong and weak, over several tablets and a link that delays, repeats and
// loses messages, while other clients keep the same observers busy.
func TestWaitForWaitsForTheLastEffect(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Register: notifytest.RegisterCascade, Faults: slowLink,
		LockTTL: 500 * time.Millisecond,
	})
	for _, table := range notifytest.CascadeTables() {
		if err := n.DB.CreateTable(ctx, table); err != nil {
			t.Fatal(err)
		}
	}
	busy, stop := context.WithCancel(ctx)
	var others, waiters sync.WaitGroup
	for i := range 2 { // each writes until the last waiter is done
		others.Go(func() {
			for j := 0; busy.Err() == nil; j++ {
				_, _, _ = notifytest.Begin(busy, n.DB, fmt.Sprintf("n%d.%d", i, j%8))
			}
		})
	}
	for i := range 3 {
		waiters.Go(func() {
			for j := range 6 {
				row := fmt.Sprintf("w%d", (i+j)%4) // some rows are shared with the other writers
				if err := waitAndLook(ctx, n.DB, row); err != nil {
					t.Errorf("waiter %d, commit %d: %v", i, j, err)
					return
				}
			}
		})
	}
	waiters.Wait()
	stop()
	others.Wait()
}

// waitAndLook starts a cascade, waits for its effects and checks them.
func waitAndLook(ctx context.Context, db *percolator.DB, row string) error {
	to, at, err := notifytest.Begin(ctx, db, row)
	if err != nil {
		return err
	}
	left, err := db.WaitFor(ctx, at)
	if err != nil || len(left) > 0 {
		return fmt.Errorf("%v left, %w", left, err)
	}
	return notifytest.Arrived(ctx, db, row, to)
}

// TestWaitForFollowsWork: WaitFor also waits for work that moves from a tablet not yet queried to
// one that has already answered, whether the run wrote it or a separate transaction of the
// function.
func TestWaitForFollowsWork(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own transaction %v", own), func(t *testing.T) { followWork(t, own) })
	}
}

// movingWork is work that moves from the table front to the table behind during a WaitFor, after
// the tablet of behind has answered.
type movingWork struct {
	own     bool // the function writes in a separate transaction
	cluster *notifytest.Cluster

	behind, ahead percolator.Column
	back, front   mvcc.TableID

	stayed, moving, moved, last event
	asked                       atomic.Int64 // queries since the work moved
	done                        atomic.Bool
}

// event is a channel that is closed once.
type event struct {
	once sync.Once
	c    chan struct{}
}

func newMovingWork(own bool) *movingWork {
	w := &movingWork{
		own: own, cluster: notifytest.NewCluster(),
		behind: percolator.Column{Table: "behind", Name: "in"},
		ahead:  percolator.Column{Table: "front", Name: "in"},
	}
	w.back = w.cluster.AddTable(w.behind.Table)
	w.front = w.cluster.AddTable(w.ahead.Table)
	for _, e := range []*event{
		&w.stayed, // the tablet behind has answered
		&w.moving, // the tablet ahead is queried: its run may continue
		&w.moved,  // the row that it wrote is running
		&w.last,   // that run may end
	} {
		e.c = make(chan struct{})
	}
	return w
}

func (e *event) happen() { e.once.Do(func() { close(e.c) }) }

// register makes the run ahead write a row that runs behind.
func (w *movingWork) register(r *percolator.Registry) {
	r.Strong("ahead", w.ahead, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		<-w.moving.c
		if !w.own {
			tx.Set(n.Row, w.behind, []byte("moved"))
			return nil
		}
		return percolator.DBFrom(ctx).Transact(ctx,
			func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(n.Row, w.behind, []byte("moved"))
				return nil
			})
	})
	r.Strong("behind", w.behind, func(ctx context.Context, _ *percolator.Tx,
		_ percolator.Notification) error {
		w.moved.happen()
		<-w.last.c
		w.done.Store(true)
		return ctx.Err()
	})
}

// faults orders the answers to the walk: behind answers before the work moves, ahead after.
func (w *movingWork) faults(req *pb.TabletRequest) txntest.Fault {
	if req.GetPending().GetEffects() == nil {
		return txntest.Fault{}
	}
	select {
	case <-w.moved.c:
		if w.asked.Add(1) == 20 { // every waiter has queried by now
			w.last.happen()
		}
	default:
	}
	switch {
	case holds(w.cluster, req.TabletId, w.back):
		return txntest.Fault{After: w.stayed.happen}
	case holds(w.cluster, req.TabletId, w.front):
		return txntest.Fault{Before: func(ctx context.Context) {
			<-w.stayed.c
			w.moving.happen()
			<-w.moved.c
		}}
	}
	return txntest.Fault{}
}

func followWork(t *testing.T, own bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := newMovingWork(own)
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: w.cluster, Register: w.register, Faults: w.faults,
	})
	var at percolator.Timestamp
	if err := n.DB.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("r", w.ahead, []byte("begun"))
		return nil
	}, percolator.CommittedAt(&at)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.DB.WaitFor(ctx, at); err != nil {
		t.Fatal(err)
	}
	if !w.done.Load() {
		t.Error("EFFECT-MISSING: what has moved to a tablet that had answered still runs")
	}
	w.last.happen()
}

// TestWaitForBatch: the writes of a batch go back to the oldest of its commits, whatever the order
// of their rows. Catches BROKEN=origin_of_batch.
func TestWaitForBatch(t *testing.T) {
	began, opened := make(chan struct{}, 1), make(chan struct{})
	last := event{c: make(chan struct{})}
	var done atomic.Bool
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Observer: quick,
		Register: func(r *percolator.Registry) {
			r.StrongBatch("batch", raw, func(_ context.Context, tx *percolator.Tx,
				changes []percolator.Notification) error {
				if changes[0].Row == "gate" {
					began <- struct{}{}
					<-opened
					return nil
				}
				if len(changes) != 3 {
					t.Errorf("a batch of %d changes: the test shows nothing", len(changes))
				}
				tx.Set("effect", other, []byte("x"))
				return nil
			}, percolator.Concurrency(1))
			r.Strong("after", other, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				<-last.c
				done.Store(true)
				return nil
			})
		},
	})
	t.Cleanup(last.happen)
	set(t, n, "gate", raw)
	<-began
	var oldest percolator.Timestamp
	if err := n.DB.Transact(bounded(t, time.Minute),
		func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("m", raw, []byte("x"))
			return nil
		}, percolator.CommittedAt(&oldest)); err != nil {
		t.Fatal(err)
	}
	set(t, n, "a", raw) // the first of the batch
	set(t, n, "z", raw) // and the last
	notifytest.Eventually(t, time.Minute, "all wait", func() bool {
		return n.Stats("batch").Queued == 3
	})
	close(opened)
	notifytest.Eventually(t, time.Minute, "the effect alone is left", func() bool {
		return n.Stats("after").Running == 1 && cluster.Dirty() == 1
	})
	var asked atomic.Int64
	n.Process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPending().GetEffects() != nil && asked.Add(1) == 8 {
			last.happen()
		}
		return txntest.Fault{}
	})
	if _, err := n.DB.WaitFor(bounded(t, 30*time.Second), oldest); err != nil {
		t.Fatal(err)
	}
	if !done.Load() {
		t.Error("EFFECT-MISSING: the batch's effect on the older of its commits still runs")
	}
}

// holds reports whether the tablet begins with the table.
func holds(c *notifytest.Cluster, tablet uint64, table mvcc.TableID) bool {
	for _, d := range c.Tablets() {
		if d.TabletId == tablet {
			return mvcc.TableID(d.StartTable) == table
		}
	}
	return false
}
