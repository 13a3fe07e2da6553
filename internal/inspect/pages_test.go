package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestRows: pages follow one another without gaps, are bounded in rows, cells and bytes, and show
// rows as of the requested time.
func TestRows(t *testing.T) {
	db := percolatortest.Start(t, nil).DB()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	put := func(row string, columns int, value []byte) (ts percolator.Timestamp) {
		t.Helper()
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for c := range columns {
				tx.Set(row, percolator.Column{Table: "t", Name: fmt.Sprintf("c%03d", c)}, value)
			}
			return nil
		}, percolator.CommittedAt(&ts))
		if err != nil {
			t.Fatal(err)
		}
		return ts
	}
	large := bytes.Repeat([]byte("x"), 10_000)
	for i := range 60 {
		put(fmt.Sprintf("r%02d", i), 1, large)
	}
	read := func(q inspect.RowsQuery) *inspect.Rows {
		t.Helper()
		q.Table = "t"
		found, err := inspect.ReadRows(ctx, db, q)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	first := read(inspect.RowsQuery{Prefix: "r"})
	cell := first.Rows[0].Cells[0]
	if len(first.Rows) != 50 || !first.More || len(cell.Value) != 200 || cell.Bytes != 10_000 {
		t.Errorf("%d rows, more %v, %d bytes of %d", len(first.Rows), first.More, len(cell.Value), cell.Bytes)
	}
	after := string(first.Rows[49].Row)
	if rest := read(inspect.RowsQuery{Prefix: "r", After: &after}); len(rest.Rows) != 10 || rest.More ||
		rest.Rows[0].Row != "r50" {
		t.Errorf("then %d rows from %s, more %v", len(rest.Rows), rest.Rows[0].Row, rest.More)
	}

	at := put("wide", 600, []byte("old"))
	put("wide", 1, []byte("new"))
	wide := read(inspect.RowsQuery{Prefix: "w"})
	if len(wide.Rows) != 1 || len(wide.Rows[0].Cells) != 500 || !wide.Rows[0].More || !wide.More {
		t.Errorf("of a wide row %d cells, more %v", len(wide.Rows[0].Cells), wide.Rows[0].More)
	}
	then := read(inspect.RowsQuery{Prefix: "w", At: mvcc.Timestamp(at)})
	if now := wide.Rows[0].Cells[0]; now.Value != "new" || then.Rows[0].Cells[0].Value != "old" {
		t.Errorf("now %s, then %s", now.Value, then.Rows[0].Cells[0].Value)
	}
	if _, err := inspect.ReadRows(ctx, db, inspect.RowsQuery{Table: "none"}); !errors.Is(err,
		percolator.ErrNoTable) {
		t.Errorf("of no table: %v", err)
	}

	stored, err := inspect.ReadRow(ctx, handle.Client(db), "t", "wide")
	if err != nil || len(stored.Entries) != 601 || stored.More {
		t.Errorf("%d entries, more %v, %v", len(stored.Entries), stored.More, err)
	}
	for range 5 {
		put("wide", 100, large)
	}
	stored, err = inspect.ReadRow(ctx, handle.Client(db), "t", "wide")
	if err != nil || len(stored.Entries) != 1000 || !stored.More {
		t.Errorf("%d entries, more %v, %v", len(stored.Entries), stored.More, err)
	}
	for _, e := range stored.Entries {
		if e.Value != nil && (len(*e.Value) > 4<<10 || e.Bytes == 10_000 && len(*e.Value) < 4<<10) {
			t.Fatalf("%d bytes of a value of %d", len(*e.Value), e.Bytes)
		}
	}
	if _, err := inspect.ReadRow(ctx, handle.Client(db), "none", "r"); !errors.Is(err, percolator.ErrNoTable) {
		t.Errorf("a row of no table: %v", err)
	}
}
