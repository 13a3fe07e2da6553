package percolator_test

import (
	"context"
	"fmt"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// shelf opens an in-memory database with three books. A program gets its database from Dial
// or from a node.
func shelf(ctx context.Context) (db *percolator.DB, closeDB func(), err error) {
	db = handle.NewDB(txn.NewClient(txntest.New().Process(1, 1), txn.Config{}))
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "books"}); err != nil {
		return nil, nil, err
	}
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, b := range [][3]string{
			{"novel/emma", "Emma", "Austen"}, {"novel/ulysses", "Ulysses", "Joyce"},
			{"poem/odyssey", "The Odyssey", "Homer"},
		} {
			tx.Set(b[0], title, []byte(b[1]))
			tx.Set(b[0], author, []byte(b[2]))
		}
		return nil
	})
	return db, func() { _ = handle.Client(db).Close() }, err
}

var (
	title  = percolator.Column{Table: "books", Name: "title"}
	author = percolator.Column{Table: "books", Name: "author"}
)

// A Row has all cells of a row.
func ExampleScanRows() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer snapshot.Close()
	for row, err := range percolator.ScanRows(ctx, snapshot, percolator.Rows("books").Prefix("novel/")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		name, _ := row.Get(title)
		by, _ := row.Get(author)
		fmt.Printf("%s: %s by %s\n", row.Row, name, by)
	}
	// Output:
	// novel/emma: Emma by Austen
	// novel/ulysses: Ulysses by Joyce
}

func ExampleGetRow() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		row, ok, err := percolator.GetRow(ctx, tx, "books", "poem/odyssey")
		if err != nil || !ok {
			return err
		}
		for _, cell := range row.Cells {
			fmt.Printf("%s: %s\n", cell.Column.Name, cell.Value)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// author: Homer
	// title: The Odyssey
}

func ExampleTx_DeleteRow() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		if err := tx.DeleteRow(ctx, "books", "novel/emma"); err != nil {
			return err
		}
		_, ok, err := percolator.GetRow(ctx, tx, "books", "novel/emma")
		fmt.Println("exists:", ok)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: exists: false
}

// DeleteRange deletes a range two rows at a time. Deleted.Next is all that another call, or another
// process, needs to continue.
func ExampleDB_DeleteRange() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	for rows := percolator.Rows("books").Limit(2); ; {
		d, err := db.DeleteRange(ctx, rows)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Rows, "rows,", d.Cells, "cells")
		if d.Done {
			break
		}
		rows = rows.From(d.Next) // pause here to limit the load
	}
	// Output:
	// 2 rows, 4 cells
	// 1 rows, 2 cells
}

// DeleteColumnRange deletes a column that nothing reads any more. The other columns remain.
func ExampleDB_DeleteColumnRange() {
	ctx := context.Background()
	db, closeDB, err := shelf(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeDB()
	d, err := db.DeleteColumnRange(ctx, percolator.Rows("books").Prefix("novel/"), author)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Cells, "cells")
	if err := db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		for c, err := range s.Scan(ctx, percolator.Rows("books").KeysOnly(), author) {
			if err != nil {
				return err
			}
			fmt.Println("left:", c.Row)
		}
		return nil
	}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 cells
	// left: poem/odyssey
}
