package percolator_test

import (
	"context"
	"fmt"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// Ann and Bob are both on call, and at least one of them must stay on call. Both try to leave
// at the same time. The transaction of each locks the cell of the other, so that only one of
// the two commits.
func ExampleTx_Lock() {
	ctx := context.Background()
	db := handle.NewDB(txn.NewClient(txntest.New().Process(1, 1), txn.Config{}))
	defer handle.Client(db).Close()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "rota"}); err != nil {
		fmt.Println(err)
		return
	}
	onCall := percolator.Column{Table: "rota", Name: "on-call"}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("Ann", onCall, []byte("yes"))
		tx.Set("Bob", onCall, []byte("yes"))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	leave := func(who, other string) (*percolator.Tx, error) {
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if _, ok, err := tx.Get(ctx, other, onCall); err != nil || !ok {
			return tx, err // the other one has left: stay
		}
		tx.Lock(other, onCall)
		tx.Delete(who, onCall)
		return tx, nil
	}
	ann, err := leave("Ann", "Bob")
	if err != nil {
		fmt.Println(err)
		return
	}
	bob, err := leave("Bob", "Ann")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = ann.Commit(ctx)
	fmt.Println("Ann may go:", err == nil)
	_, err = bob.Commit(ctx) // Transact would retry, and Bob would stay
	fmt.Println("Bob may go:", err == nil)
	// Output:
	// Ann may go: true
	// Bob may go: false
}

// The sum of two accounts must not fall below zero, though each account may. Every withdrawal
// validates the account that it only reads, and does not commit if that account has changed
// since.
func ExampleTx_Validate() {
	ctx := context.Background()
	db := handle.NewDB(txn.NewClient(txntest.New().Process(1, 1), txn.Config{}))
	defer handle.Client(db).Close()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "bank"}); err != nil {
		fmt.Println(err)
		return
	}
	balance := percolator.Column{Table: "bank", Name: "balance"}
	read := func(ctx context.Context, tx *percolator.Tx, row string) (n int, err error) {
		v, ok, err := tx.Get(ctx, row, balance)
		if ok {
			_, err = fmt.Sscan(string(v), &n)
		}
		return n, err
	}
	withdraw := func(from, other string, amount int) error {
		return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			a, err := read(ctx, tx, from)
			if err != nil {
				return err
			}
			b, err := read(ctx, tx, other)
			if err != nil {
				return err
			}
			if a+b < amount {
				return fmt.Errorf("only %d left", a+b)
			}
			tx.Validate(other, balance)
			tx.Set(from, balance, fmt.Append(nil, a-amount))
			return nil
		})
	}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("current", balance, []byte("60"))
		tx.Set("savings", balance, []byte("40"))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 2)
	go func() { done <- withdraw("current", "savings", 80) }()
	go func() { done <- withdraw("savings", "current", 80) }()
	for range 2 {
		if err := <-done; err != nil {
			fmt.Println(err)
		}
	}
	// Output: only 20 left
}
