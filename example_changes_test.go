package percolator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/percolator-go/percolator"
)

// An index follows a table: first its state, then each Change. A resolved timestamp says that the
// changes up to it are complete.
func ExampleDB_Changes() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	index, changed := map[string]string{}, false
	for change, err := range db.Changes(ctx, 0, percolator.Rows("books").Prefix("novel/").Columns("title")) {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case change.Resolved == 0 && change.Deleted:
			delete(index, change.Row)
		case change.Resolved == 0:
			index[change.Row] = string(change.Value)
		case !changed:
			fmt.Println(index)
			changed = true
			err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Delete("novel/ulysses", title)
				tx.Set("novel/emma", title, []byte("Emma, a Novel"))
				return nil
			})
			if err != nil {
				fmt.Println(err)
				return
			}
		case len(index) == 1:
			fmt.Println(index)
			return
		}
	}
	// Output:
	// map[novel/emma:Emma novel/ulysses:Ulysses]
	// map[novel/emma:Emma, a Novel]
}

// A Subscription is a position that the cluster stores, so that a subscriber continues where it was.
// A SubscriptionInfo of DB.Subscriptions says whether its history is still complete.
func ExampleDB_Subscribe() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		return
	}
	defer closeDB()
	sub, err := db.Subscribe(ctx, "search-index")
	if err != nil {
		return
	}
	var stored time.Time
	for change, err := range sub.Changes(ctx, percolator.Rows("books")) {
		if err != nil {
			return
		}
		if change.Resolved != 0 && time.Since(stored) > time.Second { // and the index has been flushed
			if err := sub.Advance(ctx, change.Resolved); err != nil {
				return
			}
			stored = time.Now()
		}
	}
}
