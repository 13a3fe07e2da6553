package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// TestHandlesCloseAlone: closing a handle on the node's database affects no other handle, nor
// the one of observers.
func TestHandlesCloseAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	col, used := percolator.Column{Table: "t", Name: "c"}, make(chan error, 16)
	n := open(t, t.TempDir(), func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Strong("uses", col, func(ctx context.Context, _ *percolator.Tx,
				_ percolator.Notification) error {
				_, err := percolator.DBFrom(ctx).Tables(ctx)
				used <- errors.Join(err, percolator.DBFrom(ctx).Close())
				return nil
			})
		}
	})
	mine, other := n.DB(), n.DB()
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Tables(ctx); !errors.Is(err, percolator.ErrClosed) {
		t.Errorf("a closed handle: %v", err)
	}
	for _, db := range []*percolator.DB{other, n.DB()} {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("row", col, []byte("v"))
			return nil
		})
		if err != nil {
			t.Fatalf("another handle: %v", err)
		}
		select {
		case err := <-used:
			if err != nil {
				t.Errorf("the observer's handle: %v", err)
			}
		case <-ctx.Done():
			t.Fatal("the observer did not run")
		}
	}
}

// TestMaxRetriesOfNewTable: a run that finds its table dropped and recreated is no retry after a
// conflict.
func TestMaxRetriesOfNewTable(t *testing.T) {
	ctx := within(t, time.Minute)
	col := percolator.Column{Table: "t", Name: "c"}
	n := open(t, "", nil)
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	runs := 0
	set := func() error {
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			runs++
			tx.Set("a", col, nil)
			return nil
		}, percolator.MaxRetries(0))
	}
	spec := percolator.TableSpec{Name: "t"}
	if err := errors.Join(n.DB().CreateTable(ctx, spec), set(), n.DB().DropTable(ctx, "t"),
		n.DB().CreateTable(ctx, spec)); err != nil {
		t.Fatal(err)
	}
	if err := set(); err != nil || runs != 3 {
		t.Errorf("%d runs, want 3, the second with the dropped table: %v", runs, err)
	}
}
