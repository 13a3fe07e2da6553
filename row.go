package percolator

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/percolator-go/percolator/internal/txn"
)

// Reads and deletions of whole rows, implemented by scans and deletions of cells. They keep
// no state and run on the caller's goroutine.

// Row is one row as a reader sees it: its cells, at least one, ordered by column.
type Row struct {
	Row   string
	Cells []Cell
	// Key is Row.
	//
	// Deprecated: use Row.
	Key string
}

// Get returns the value of a column; ok is false if the row has no such cell. The value
// belongs to the row.
func (r Row) Get(col Column) (value []byte, ok bool) {
	i, ok := slices.BinarySearchFunc(r.Cells, col.Name, func(c Cell, name string) int {
		return strings.Compare(c.Column.Name, name)
	})
	if !ok || r.Cells[i].Column != col {
		return nil, false
	}
	return r.Cells[i].Value, true
}

// only restricts the range to one row.
func (r RowRange) only(row string) RowRange { return r.From(row).Before(row + "\x00") }

// GetRow reads one row of a table, or only the given columns; ok is false if it has no cells.
// It holds the whole row in memory; use Reader.Scan for a row with very many cells.
func GetRow(ctx context.Context, r Reader, table, row string, cols ...Column) (found Row, ok bool,
	err error) {
	for found, err = range ScanRows(ctx, r, Rows(table).only(row), cols...) {
		return found, err == nil, err
	}
	return Row{}, false, nil
}

// ScanRows is like Reader.Scan but yields whole rows. With cols, a row has only those columns,
// and rows without any of them are skipped. The cells of a row are in ascending order of
// columns even after Reverse. An error is the last element of the sequence; a row that it
// interrupts is not yielded.
func ScanRows(ctx context.Context, r Reader, rows RowRange, cols ...Column) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var row Row
		whole := func() Row {
			if rows.reverse {
				slices.Reverse(row.Cells)
			}
			return row
		}
		for c, err := range r.Scan(ctx, rows, cols...) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			if len(row.Cells) > 0 && c.Row != row.Row {
				if !yield(whole(), nil) {
					return
				}
				row.Cells = nil
			}
			row.Row, row.Key, row.Cells = c.Row, c.Row, append(row.Cells, c)
		}
		if len(row.Cells) > 0 {
			yield(whole(), nil)
		}
	}
}

// DeleteRow buffers the deletion of all cells of a row that the transaction sees, including
// its own buffered writes. It conflicts with concurrent writes to these cells. A cell that a
// concurrent transaction adds to the row remains.
func (tx *Tx) DeleteRow(ctx context.Context, table, row string) error {
	for c, err := range tx.Scan(ctx, Rows(table).only(row)) {
		if err != nil {
			return err
		}
		tx.Delete(row, c.Column)
	}
	return nil
}

// Deleted is the progress of a DeleteRange or DeleteColumnRange.
type Deleted struct {
	Rows, Cells int // deleted so far; Rows counts the rows of those cells
	// Done reports that the scan reached the end of the range and deleted all that it found.
	Done bool
	// Next is the first row that is not yet scanned or not yet deleted completely, unless
	// Done. To continue, repeat the call with rows.From(d.Next).
	Next string
}

// DeleteRange deletes all rows of a range in a sequence of transactions. Each deletes up to
// 1,000 cells, in whole rows unless a single row has more; after a conflict it is retried with
// half as many. DeleteRange as a whole is not atomic: readers may see some rows deleted and
// others not, and rows written behind its position remain. Observers of deleted cells run.
//
// DeleteRange returns its progress even when it fails. If ctx ends, it stops with ctx's error.
// After ErrCommitUnknown the last transaction may have deleted more than Deleted reports. In
// both cases a later call, from this or another process, can continue at Next.
// Rows(…).Limit(n) deletes n rows, so that a caller can pause between calls. DeleteRange
// returns ErrInvalid for a range in Reverse.
func (db *DB) DeleteRange(ctx context.Context, rows RowRange) (Deleted, error) {
	return db.deleteCells(ctx, rows, "delete range")
}

// DeleteColumn deletes the cells of one column in a range of rows, in a sequence of transactions as
// DeleteColumnRange does. After an error, another call deletes the cells that remain.
func (db *DB) DeleteColumn(ctx context.Context, rows RowRange, col Column) error {
	_, err := db.DeleteColumnRange(ctx, rows, col)
	return err
}

// DeleteColumnRange deletes the cells of one column in a range of rows, like DeleteRange: in a
// sequence of transactions, each of up to 1,000 cells or 2 s of search. The cells of other
// columns remain. It reads no values.
//
// A deleted cell is deleted as by Tx.Delete: observers of the column run for it and Get finds
// nothing, a lock of a running transaction is waited for, and snapshots see the old value as
// long as the history is retained. Transactions that read such a cell and write it conflict.
//
// The progress, its continuation and the errors are those of DeleteRange. DeleteColumnRange
// returns ErrInvalid if col belongs to another table.
func (db *DB) DeleteColumnRange(ctx context.Context, rows RowRange, col Column) (Deleted, error) {
	return db.deleteCells(ctx, rows, "delete column", col)
}

// deleteCells deletes the cells of cols, or of all columns, in a sequence of transactions.
func (db *DB) deleteCells(ctx context.Context, rows RowRange, name string,
	cols ...Column) (Deleted, error) {
	all := Deleted{Next: rows.from}
	if err := db.check(); err != nil {
		return all, err
	}
	if rows.reverse {
		return all, txn.Invalid("cannot delete a range in reverse")
	}
	spec, err := rows.spec(cols)
	if err != nil {
		return all, err
	}
	for !all.Done && (rows.limit == 0 || all.Rows < rows.limit) {
		spec.From, spec.Limit = all.Next, max(rows.limit-all.Rows, 0)
		d, err := db.c.DeleteSome(ctx, txn.Deletion{ScanSpec: spec, Name: name})
		if err != nil {
			return all, err
		}
		all.Rows, all.Cells = all.Rows+d.Rows, all.Cells+d.Cells
		all.Done, all.Next = d.Done, d.Next
	}
	return all, nil
}
