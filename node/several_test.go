package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node"
)

// marks registers observers of input that append to the column of the row with their name.
func marks(names ...string) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		for _, name := range names {
			column := percolator.Column{Table: input.Table, Name: name}
			r.Strong(name, input, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
				v, _, err := tx.Get(ctx, n.Row, column)
				if err == nil {
					tx.Set(n.Row, column, append(v, '+'))
				}
				return err
			})
		}
	}
}

func observing(register func(*percolator.Registry)) func(*node.Config) {
	return func(c *node.Config) { c.Observers = register }
}

// marked checks the number of the observer's runs for each of the rows [from, to).
func marked(t *testing.T, db *percolator.DB, name string, from, to, want int) {
	t.Helper()
	ctx := within(t, time.Minute)
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		v, _, err := s.Get(ctx, rowOf(i), percolator.Column{Table: input.Table, Name: name})
		if err != nil || len(v) != want {
			t.Errorf("%s has run %d times for %s, want %d (%v)", name, len(v), rowOf(i), want, err)
		}
	}
}

// TestSecondObserverOfAColumn: a second observer of a column sees later changes and, by a
// back-fill, the earlier ones; its pending notifications survive a restart and a split. Retiring
// one observer removes nothing of the other, and frees its entry for a later one.
func TestSecondObserverOfAColumn(t *testing.T) {
	const rows = 20
	dir := t.TempDir()
	n := open(t, dir, observing(marks("one")))
	reopen := func(names ...string) {
		t.Helper()
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		n = open(t, dir, observing(marks(names...)))
	}
	own := func(name string, want bool) {
		t.Helper()
		if got := stateOf(t, n, name).Info.OwnEntry; got != want {
			t.Errorf("%s has notify entries of its own: %v, want %v", name, got, want)
		}
	}
	write(t, n.DB(), 0, rows)
	waitIdle(t, n)
	reopen("one", "two")
	own("one", false)
	own("two", true)
	write(t, n.DB(), rows, rows+5)
	waitIdle(t, n)
	marked(t, n.DB(), "two", 0, rows, 0)
	marked(t, n.DB(), "two", rows, rows+5, 1)
	backfill(t, n, "two", pb.BackfillRequest_ACTION_START)
	eventually(t, "the back-fill is done", func() bool { return stateOf(t, n, "two").Backfill.Done })
	waitIdle(t, n)
	marked(t, n.DB(), "two", 0, rows, 1)
	marked(t, n.DB(), "one", 0, rows, 1) // the other's back-fill does not run it

	controlObserver(t, n, &pb.ControlObserverRequest{Name: "two", Paused: proto.Bool(true)})
	write(t, n.DB(), 0, rows)
	waitIdle(t, n)
	if err := handle.Client(n.DB()).Transport().SplitTablet(within(t, time.Minute), input.Table, rowOf(rows/2)); err != nil {
		t.Fatal(err)
	}
	reopen("one", "two")
	if s := stateOf(t, n, "two"); s.Notifications != rows || !s.Info.Paused {
		t.Errorf("CLEARED-FOR-ALL: %d notifications wait for the paused observer, want %d", s.Notifications, rows)
	}
	if s := stateOf(t, n, "one"); s.Notifications != 0 {
		t.Errorf("%d notifications wait for the other", s.Notifications)
	}

	controlObserver(t, n, &pb.ControlObserverRequest{Name: "one", Retire: true})
	eventually(t, "the first is gone", func() bool { return stateOf(t, n, "one") == nil })
	if s := stateOf(t, n, "two"); s.Notifications != rows {
		t.Errorf("RETIRED-ANOTHER: %d notifications wait for the other, want %d", s.Notifications, rows)
	}
	reopen("two", "three")
	own("two", true)
	own("three", false)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "two", Paused: proto.Bool(false)})
	write(t, n.DB(), 0, 1)
	waitIdle(t, n)
	marked(t, n.DB(), "two", 1, rows, 2)
	marked(t, n.DB(), "three", 0, 1, 1)
	marked(t, n.DB(), "three", 1, rows, 0)
	marked(t, n.DB(), "one", 0, rows, 2)
}

// TestSecondObserverAwaitsTheUpgrade: until all nodes have a build that supports several observers
// of a column, a second one is refused, and the node with the first continues.
func TestSecondObserverAwaitsTheUpgrade(t *testing.T) {
	u := newUpgrader(t)
	first, second := marks("one"), marks("one", "two")
	u.register = first
	u.replace("a", version.Known())
	refused := func(when string) {
		t.Helper()
		u.close(u.up["a"])
		delete(u.up, "a")
		u.register = second
		err := u.open("a", version.Known())
		if err == nil || !strings.Contains(err.Error(), "needs the cluster to be at version 6, and it is at 2") {
			t.Fatalf("FEATURE-BEFORE-FINAL: %s: the second observer: %v", when, err)
		}
		u.register = first
		u.replace("a", version.Known())
	}
	refused("another node is of an earlier build")
	u.register = nil
	u.replace("b", version.Known())
	refused("not finalised")
	if r, err := u.finalize("b"); err != nil || version.Number(r.Agreed.Active) < version.SeveralObservers.Since {
		t.Fatalf("finalised: %v, %v", r, err)
	}
	u.register = second
	u.replace("a", version.Known())
	write(t, u.up["b"].DB(), 0, 5)
	waitIdle(t, u.up["a"])
	marked(t, u.up["b"].DB(), "one", 0, 5, 1)
	marked(t, u.up["b"].DB(), "two", 0, 5, 1)
}
