package node_test

import (
	"context"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// TestNodeWithoutReplicas: a node without any replica works at once. It serves transactions, tables
// and timestamps, and runs and lists observers of tablets on other nodes.
func TestNodeWithoutReplicas(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := watch()
	r := newRig(t, 2, func(i int, c *node.Config) {
		c.Placement.Off = true
		if i == 1 {
			c.Observers = o.register
		}
	})
	bare := r.nodes[1]
	if held := bare.Status().Tablets; len(held) != 0 {
		t.Fatalf("the new node holds %d tablets", len(held))
	}
	if err := workload.Prepare(ctx, bare.DB(), 3); err != nil {
		t.Fatal(err)
	}
	if err := workload.OpenBank(ctx, bare.DB()); err != nil {
		t.Fatal(err)
	}
	l := workload.Load{Workers: 4, Duration: time.Second, Seed: 3}
	if err := workload.Bank(ctx, bare.DB(), l); err != nil {
		t.Error(err)
	}
	if err := workload.ListAppend(ctx, r.nodes[0].DB(), l); err != nil {
		t.Error(err)
	}
	if err := set(ctx, r.nodes[0].DB(), "r", o.column, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if row := o.await(t); row != "r" {
		t.Errorf("the observer ran for row %q", row)
	}
	if err := r.nodes[0].DB().WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	for i, n := range r.nodes { // registered on one node, known on both
		states, err := handle.Client(n.DB()).Transport().Observers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(states) != 1 || !states[0].Linked {
			t.Errorf("node %d: observers %v", i, states)
		}
	}
	before, err := handle.Client(r.nodes[0].DB()).Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	after, err := handle.Client(bare.DB()).Timestamp(ctx)
	if err != nil || after <= before {
		t.Errorf("timestamp %d after %d, %v", after, before, err)
	}
}

// TestPauseHoldsOnAllNodes: an observer paused through one node has stopped on the others when the
// call returns.
func TestPauseHoldsOnAllNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := watch()
	r := newRig(t, 2, func(i int, c *node.Config) {
		if i == 1 {
			c.Observers = o.register
		}
	})
	operator := handle.Client(r.nodes[0].DB()).Admin()
	for _, paused := range []bool{true, false} {
		if _, err := operator.ControlObserver(ctx,
			&pb.ControlObserverRequest{Name: "watcher", Paused: &paused}); err != nil {
			t.Fatal(err)
		}
		if status := r.nodes[1].Status().Observers; len(status) != 1 || status[0].Paused != paused {
			t.Errorf("paused %v: the other node's observers are %v", paused, status)
		}
	}
}

// TestDeadWorkersWork: a node dies while one of its observers runs. Its advisory lock at the leader
// of the row's tablet is dropped with it, and another node takes over the row long before the 30 s for
// which an advisory lock lasts.
func TestDeadWorkersWork(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	column := percolator.Column{Table: "work", Name: "c"}
	began, done := make(chan string, 8), make(chan time.Time, 8)
	r := newRig(t, 2, func(i int, c *node.Config) {
		c.Placement.Off = true // the row's tablet, and with it its locks, stays where it is
		if i == 0 {
			return
		}
		c.Observers = func(reg *percolator.Registry) {
			reg.Strong("worker", column,
				func(ctx context.Context, _ *percolator.Tx, n percolator.Notification) error {
					if i == 1 {
						began <- n.Row
						<-ctx.Done()
						return ctx.Err()
					}
					done <- time.Now()
					return nil
				})
		}
	})
	if err := set(ctx, r.nodes[0].DB(), "r", column, []byte("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-began:
	case <-ctx.Done():
		t.Fatal("the observer did not begin")
	}
	r.add()
	select {
	case <-done:
		t.Fatal("two nodes run one notification at once: the lock service is not asked across nodes")
	case <-time.After(time.Second):
	}
	died := time.Now()
	r.crash(1)
	select {
	case at := <-done:
		if took := at.Sub(died); took > 10*time.Second {
			t.Errorf("the dead node's work was picked up after %v", took)
		}
	case <-ctx.Done():
		t.Fatal("the dead node's work was never picked up")
	}
}
