package percolator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/tuple"
)

// openExample returns an in-memory database with the tables.
func openExample(tables ...string) (db *percolator.DB, done func()) {
	cluster := txntest.New()
	for _, name := range tables {
		cluster.AddTable(name)
	}
	client := txn.NewClient(cluster.Process(1, 1), txn.Config{})
	return handle.NewDB(client), func() { _ = client.Close() }
}

type Report struct {
	Title string
	Pages int
}

// A program declares each column once, with the type of its values, and builds its rows with
// package tuple.
func ExampleTypedColumn() {
	reports := percolator.Typed(percolator.Column{Table: "reports", Name: "report"},
		percolator.JSON[Report]())
	views := percolator.Typed(percolator.Column{Table: "reports", Name: "views"},
		percolator.Integer[int]())

	ctx := context.Background()
	db, done := openExample("reports")
	defer done()
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		row := tuple.Pack("vienna", 2010, 7)
		reports.Set(tx, row, Report{"Trams", 12})
		n, _, err := views.Get(ctx, tx, row) // 0 if there is none
		if err != nil {
			return err
		}
		views.Set(tx, row, n+1)
		return nil
	})
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
	vienna := percolator.Rows("reports").Prefix(tuple.Prefix("vienna"))
	for cell, err := range reports.Scan(ctx, snapshot, vienna) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(cell.Value.Title, cell.Value.Pages)
	}
	// Output: Trams 12
}

// The error of a cell that cannot be decoded names the cell.
func ExampleCodecError() {
	column := percolator.Column{Table: "reports", Name: "views"}
	views := percolator.Typed(column, percolator.Integer[int]())
	cell := percolator.Cell{CellKey: views.Key("r7"), Value: []byte("many")}
	_, err := views.Decode(cell)
	fmt.Println(err)
	var fault *percolator.CodecError
	fmt.Println(errors.As(err, &fault), fault.Key.Row)
	// Output:
	// percolator: row "r7", column "views" of table "reports" cannot be decoded: strconv.ParseInt: parsing "many": invalid syntax
	// true r7
}
