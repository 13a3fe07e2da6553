package percolator_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// Bob pays Joe 7 dollars, as in the paper's Figure 4. Outside of a test the database
// comes from Dial, or from a node.
func Example() {
	ctx := context.Background()
	db := handle.NewDB(txn.NewClient(txntest.New().Process(1, 1), txn.Config{}))
	defer handle.Client(db).Close()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "bank"}); err != nil {
		fmt.Println(err)
		return
	}
	balance := percolator.Column{Table: "bank", Name: "balance"}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("Bob", balance, []byte("10"))
		tx.Set("Joe", balance, []byte("2"))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	read := func(ctx context.Context, r percolator.Reader, row string) (int, error) {
		v, _, err := r.Get(ctx, row, balance)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(string(v))
	}
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		bob, err := read(ctx, tx, "Bob")
		if err != nil {
			return err
		}
		joe, err := read(ctx, tx, "Joe")
		if err != nil {
			return err
		}
		tx.Set("Bob", balance, []byte(strconv.Itoa(bob-7)))
		tx.Set("Joe", balance, []byte(strconv.Itoa(joe+7)))
		return nil
	}, percolator.Name("transfer"))
	if err != nil {
		fmt.Println(err)
		return
	}

	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer snapshot.Close()
	for cell, err := range snapshot.Scan(ctx, percolator.Rows("bank"), balance) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(cell.Row, string(cell.Value))
	}
	// Output:
	// Bob 3
	// Joe 9
}
