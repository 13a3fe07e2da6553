package percolator_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/node"
)

// Bob pays Joe 7 dollars, as in the paper's Figure 4. A program gets its database from Dial
// or from a node.
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

// reports registers an observer that counts the words of a text.
func reports(r *percolator.Registry) {
	r.Strong("count", percolator.Column{Table: "texts", Name: "body"},
		func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			body, _, err := tx.Get(ctx, n.Row, n.Column)
			if err != nil {
				return err
			}
			tx.Set(n.Row, percolator.Column{Table: "texts", Name: "words"},
				[]byte(strconv.Itoa(len(strings.Fields(string(body))))))
			return nil
		})
}

// A writer waits for the observers that its commit triggers, and reads their result.
func ExampleDB_WaitFor() {
	ctx := context.Background()
	n, err := inMemory(ctx, reports)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = n.Close(ctx) }()
	db := n.DB()
	body := percolator.Column{Table: "texts", Name: "body"}
	var at percolator.Timestamp
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", body, []byte("three short words"))
		return nil
	}, percolator.CommittedAt(&at))
	if err != nil {
		fmt.Println(err)
		return
	}
	unfinished, err := db.WaitFor(ctx, at)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, u := range unfinished {
		fmt.Println(u.Name, "parked:", u.Parked, "held:", u.Held)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	words, _, err := s.Get(ctx, "a", percolator.Column{Table: "texts", Name: "words"})
	fmt.Println(string(words), err)
	// Output: 3 <nil>
}

// A reader of derived data opens snapshots until one is settled.
func ExampleSnapshot_Settled() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := inMemory(ctx, reports)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = n.Close(ctx) }()
	db := n.DB()
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", percolator.Column{Table: "texts", Name: "body"}, []byte("two words"))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		s, err := db.Snapshot(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		settled, err := s.Settled(ctx, "texts")
		if err != nil {
			fmt.Println(err)
			return
		}
		if settled { // every stored text has its word count
			words, _, err := s.Get(ctx, "a", percolator.Column{Table: "texts", Name: "words"})
			fmt.Println(string(words), err)
			_ = s.Close()
			return
		}
		_ = s.Close()
	}
	// Output: 2 <nil>
}

// inMemory opens an in-memory node; a program sets cfg.Dir instead.
func inMemory(ctx context.Context, observers func(*percolator.Registry)) (*node.Node, error) {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "", true, true
	cfg.Logger, cfg.Observers = slog.New(slog.DiscardHandler), observers
	return node.Open(ctx, cfg)
}
