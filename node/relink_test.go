package node_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/node"
)

// remake drops the table and recreates it.
func remake(t *testing.T, db *percolator.DB, table string) {
	t.Helper()
	ctx := within(t, time.Minute)
	if err := db.DropTable(ctx, table); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: table}); err != nil {
		t.Fatal(err)
	}
}

// TestTableMadeAnewIsObserved: a table dropped and recreated while a node runs has the observers of
// the node's program when CreateTable returns, weak ones too. A pause ended with the old table; a
// retired observer stays retired.
func TestTableMadeAnewIsObserved(t *testing.T) {
	const rows = 20
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("counter", input, counts)
			r.Weak("poker", poked, counts)
		}
	})
	for round := range 3 {
		write(t, n.DB(), 0, rows)
		err := n.DB().Transact(within(t, time.Minute),
			func(_ context.Context, tx *percolator.Tx) error {
				tx.Notify(rowOf(rows), poked)
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		waitIdle(t, n)
		checkCounts(t, n.DB(), rows+1, times(1))
		for _, name := range []string{"counter", "poker"} {
			if s := stateOf(t, n, name); s == nil || !s.Linked || s.Status.GetPaused() {
				t.Fatalf("round %d: %s is %v", round, name, s)
			}
		}
		if round == 1 {
			controlObserver(t, n, &pb.ControlObserverRequest{
				Name: "counter", Paused: proto.Bool(true),
			})
		}
		remake(t, n.DB(), input.Table)
	}
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "poker", Retire: true})
	remake(t, n.DB(), input.Table)
	if s := stateOf(t, n, "poker"); s != nil {
		t.Errorf("a retired observer is back: %v", s)
	}
	if s := stateOf(t, n, "counter"); s == nil || !s.Linked {
		t.Errorf("beside a retired one: %v", s)
	}
}

// TestForgottenObserverStaysRetired: an observer whose entry is deleted before its node reads the
// retirement is retired there too, and does not return with a recreated table.
func TestForgottenObserverStaysRetired(t *testing.T) {
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("counter", input, counts)
			r.Weak("poker", poked, counts)
		}
	})
	if err := n.RetireUnheard(within(t, time.Minute), "poker"); err != nil {
		t.Fatal(err)
	}
	// the node reads the catalogue
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Limit: proto.Uint32(1)})
	for range 2 {
		remake(t, n.DB(), input.Table)
		if s := stateOf(t, n, "poker"); s != nil {
			t.Errorf("a retired observer is back: %v", s)
		}
		if s := stateOf(t, n, "counter"); s == nil || !s.Linked {
			t.Errorf("beside a retired one: %v", s)
		}
	}
}

// TestTableMadeAnewIsObservedByAll: the node that recreates the table has no observers; another
// has, and is asked to register them.
func TestTableMadeAnewIsObservedByAll(t *testing.T) {
	ctx := within(t, time.Minute)
	o := watch()
	r := newRig(t, 2, func(i int, c *node.Config) {
		c.Placement.Off = true
		if i == 1 {
			c.Observers = o.register
		}
	})
	db := r.nodes[0].DB()
	for range 2 {
		if err := set(ctx, db, "r", o.column, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if row := o.await(t); row != "r" {
			t.Errorf("the observer ran for row %q", row)
		}
		if err := db.WaitIdle(ctx); err != nil {
			t.Fatal(err)
		}
		remake(t, db, o.column.Table)
	}
}
