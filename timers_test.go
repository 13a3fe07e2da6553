package percolator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// An order that is not paid within a day is cancelled. A transaction cannot cancel a timer, so the
// observer checks that the order is still unpaid.
func ExampleTx_NotifyAfter() {
	state := percolator.Column{Table: "orders", Name: "state"}
	overdue := percolator.Column{Table: "orders", Name: "overdue"} // weak: without values

	r := percolator.NewRegistry() // the node's
	r.Weak("cancel", overdue, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		now, _, err := tx.Get(ctx, n.Row, state)
		if err == nil && string(now) == "placed" {
			tx.Set(n.Row, state, []byte("cancelled"))
		}
		return err
	})

	ctx := context.Background()
	db, closeDB := withWeak(overdue)
	defer closeDB()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("4711", state, []byte("placed"))
		tx.NotifyAfter("4711", overdue, 24*time.Hour)
		return nil
	})
	fmt.Println(r.Err(), err)
	// Output: <nil> <nil>
}

// withWeak returns a database with the column's table and a weak observer of the column.
func withWeak(col percolator.Column) (db *percolator.DB, closeDB func()) {
	cluster := txntest.New()
	table := cluster.AddTable(col.Table)
	cluster.Observe(table, col.Name, mvcc.ObservedWeak)
	cluster.Announce(table, col.Name)
	client := txn.NewClient(cluster.Process(1, 1), txn.Config{})
	return handle.NewDB(client), func() { _ = client.Close() }
}
