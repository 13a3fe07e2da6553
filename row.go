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
	Key   string
	Cells []Cell
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
			if len(row.Cells) > 0 && c.Row != row.Key {
				if !yield(whole(), nil) {
					return
				}
				row.Cells = nil
			}
			row.Key, row.Cells = c.Row, append(row.Cells, c)
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

// Deleted is the progress of a DeleteRange.
type Deleted struct {
	Rows, Cells int // deleted so far
	// Done reports that the scan reached the end of the range and deleted all that it found.
	Done bool
	// Next is the first row that is not yet scanned or not yet deleted completely, unless
	// Done. To continue, call DeleteRange with rows.From(d.Next).
	Next string
}

// Bounds of one transaction of DeleteRange.
const (
	maxDeleteCells = 1000
	maxDeleteBytes = 1 << 20 // of rows and columns, plus deleteCellCost per cell
	deleteCellCost = 64
)

// DeleteRange deletes all rows of a range in a sequence of transactions. Each deletes up to
// 1,000 cells, in whole rows unless a single row has more; after a conflict it is retried with
// half as many. DeleteRange as a whole is not atomic: readers may see some rows deleted and
// others not, and rows written behind its position remain. Observers of deleted cells run.
//
// DeleteRange returns its progress even when it fails. If ctx ends, it stops with ctx's error.
// After ErrCommitUnknown the last transaction may have deleted more than Deleted reports. In
// both cases a later call, from this or another process, can continue at Next.
// Rows(…).Limit(n) deletes n rows, so that a caller can pause between calls; Limit(0) deletes
// none. DeleteRange returns ErrInvalid for a range in Reverse.
func (db *DB) DeleteRange(ctx context.Context, rows RowRange) (Deleted, error) {
	all := Deleted{Next: rows.from}
	if rows.reverse {
		return all, txn.Invalid("cannot delete a range in reverse")
	}
	if rows.nothing {
		return all, nil
	}
	for limit := rows.limit; !all.Done && (limit == 0 || all.Rows < limit); {
		step := rows.From(all.Next)
		step.limit = max(limit-all.Rows, 0)
		d, err := db.deleteSome(ctx, step)
		if err != nil {
			return all, err
		}
		all.Rows, all.Cells = all.Rows+d.Rows, all.Cells+d.Cells
		all.Done, all.Next = d.Done, d.Next
	}
	return all, nil
}

// deleteSome deletes the first rows of a range in one transaction, with half as many cells on
// each retry: a smaller transaction conflicts less often.
func (db *DB) deleteSome(ctx context.Context, rows RowRange) (d Deleted, err error) {
	most := 2 * maxDeleteCells
	err = db.Transact(ctx, func(ctx context.Context, tx *Tx) error {
		most = max(most/2, 1)
		d, err = deleteUpTo(ctx, tx, rows, most)
		return err
	}, Name("delete range"))
	return d, err
}

// deleteUpTo buffers the deletion of up to most cells of a range.
func deleteUpTo(ctx context.Context, tx *Tx, rows RowRange, most int) (d Deleted, err error) {
	var cells []CellKey // of the current row, deleted once the row is complete
	bytes := 0
	flush := func() {
		for _, c := range cells {
			tx.Delete(c.Row, c.Column)
		}
		d.Cells, cells = d.Cells+len(cells), cells[:0]
	}
	for c, err := range tx.Scan(ctx, rows) {
		if err != nil {
			return d, err
		}
		if len(cells) > 0 && cells[0].Row != c.Row {
			flush()
			d.Rows++
		}
		if d.Cells+len(cells) >= most || bytes >= maxDeleteBytes {
			if d.Cells == 0 { // this row alone exceeds the bound
				flush()
			}
			d.Next = c.Row
			return d, nil
		}
		bytes += len(c.Row) + len(c.Column.Name) + deleteCellCost
		cells = append(cells, c.CellKey)
		d.Next = c.Row + "\x00"
	}
	if len(cells) > 0 {
		flush()
		d.Rows++
	}
	d.Done = rows.limit == 0 || d.Rows < rows.limit
	return d, nil
}
