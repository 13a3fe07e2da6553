package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// resolvedAfter follows the changes until a resolved timestamp above after, and returns it with the
// changes before it.
func resolvedAfter(ctx context.Context, t *testing.T, after percolator.Timestamp,
	changes func(func(percolator.Change, error) bool)) (rows []string, resolved percolator.Timestamp) {
	t.Helper()
	for c, err := range changes {
		switch {
		case err != nil:
			t.Fatal(err)
		case c.Resolved > after:
			return rows, c.Resolved
		case c.Resolved == 0:
			rows = append(rows, c.Row+"="+string(c.Value))
		}
	}
	t.Fatal("the feed has ended: ", ctx.Err())
	return nil, 0
}

// TestSubscriptionOutlivesRestart: over the network, a subscription continues from its position
// after the node was restarted; history that nothing else holds is kept for it, up to the policy's
// bound, and then the error says that it is lost.
func TestSubscriptionOutlivesRestart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	run := func(fn func(db *percolator.DB)) {
		n := open(t, dir, func(c *node.Config) { c.History, c.Collection.MaxHold = time.Second, time.Hour })
		defer func() {
			if err := n.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		fn(db)
	}
	var first percolator.Timestamp
	var versions []percolator.Timestamp
	run(func(db *percolator.DB) {
		if err := db.CreateTable(ctx, percolator.TableSpec{Name: past.Table}); err != nil {
			t.Fatal(err)
		}
		first = overwrite(ctx, t, db, "row", 1)[0]
		sub, err := db.Subscribe(ctx, "s")
		if err != nil || sub.Position() != 0 {
			t.Fatal(sub, err)
		}
		rows, at := resolvedAfter(ctx, t, 0, sub.Changes(ctx, percolator.Rows(past.Table)))
		if len(rows) != 1 || rows[0] != "row=row/0" {
			t.Fatalf("at first %q", rows)
		}
		if err := sub.Advance(ctx, at); err != nil || sub.Position() != at {
			t.Fatal(sub.Position(), err)
		}
		if err := sub.Advance(ctx, at-1); err != nil || sub.Position() != at {
			t.Fatalf("moved back from %d to %d: %v", at, sub.Position(), err)
		}
		versions = overwrite(ctx, t, db, "row", 3)
	})
	run(func(db *percolator.DB) {
		awaitTrue(ctx, t, "history before the position is collected", func() bool {
			// A snapshot from before would hold it.
			_, bound, err := handle.Client(db).Subscriptions(ctx, "")
			return err == nil && uint64(bound) > uint64(first)
		})
		sub, err := db.Subscribe(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := resolvedAfter(ctx, t, versions[2]-1, sub.Changes(ctx, percolator.Rows(past.Table)))
		if len(rows) != 3 || rows[0] != "row=row/0" || rows[2] != "row=row/2" {
			t.Fatalf("after a restart %q", rows)
		}
		if list, err := db.Subscriptions(ctx); err != nil || len(list) != 1 || list[0].Lost ||
			list[0].Name != "s" || list[0].Position != sub.Position() {
			t.Fatal(list, err)
		}
		_, err = db.Admin().SetPolicy(ctx, func(p *percolator.Policy) { p.CollectionMaxHold = 2 * time.Second })
		if err != nil {
			t.Fatal(err)
		}
		awaitTrue(ctx, t, "the bound passes the subscription", func() bool {
			overwrite(ctx, t, db, "row", 1)
			list, err := db.Subscriptions(ctx)
			return err == nil && list[0].Lost
		})
		for _, err := range sub.Changes(ctx, percolator.Rows(past.Table)) {
			if err == nil {
				t.Fatal("changes that are no longer complete")
			}
			if !errors.Is(err, percolator.ErrSnapshotTooOld) {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := db.DeleteSubscription(ctx, "s"); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := db.Subscriptions(ctx); err != nil || len(list) != 0 {
			t.Fatal(list, err)
		}
	})
}

// TestDroppedTableEndsFeed: a feed of a table that is dropped ends with ErrNoTable.
func TestDroppedTableEndsFeed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db := open(t, "", nil).DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: past.Table}); err != nil {
		t.Fatal(err)
	}
	overwrite(ctx, t, db, "row", 1)
	for c, err := range db.Changes(ctx, 0, percolator.Rows(past.Table)) {
		switch {
		case errors.Is(err, percolator.ErrNoTable):
			return
		case err != nil:
			t.Fatal(err)
		case c.Initial:
			if err := db.DropTable(ctx, past.Table); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the feed has ended without an error")
}
