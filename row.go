package percolator

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/percolator-go/percolator/internal/txn"
)

// This file reads and deletes whole rows. Everything in it is made of scans and deletions of
// cells; it keeps no state, and runs on the caller's goroutine.

// Row is what a reader sees of one row: its cells, by column. There is at least one.
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

// only narrows the range to one row.
func (r RowRange) only(row string) RowRange { return r.From(row).Before(row + "\x00") }

// GetRow reads one row of a table, or the given columns of it, at the snapshot that r reads;
// ok is false if it has no cell there. All of it is held in memory: for a row with very many
// cells use Reader's Scan.
func GetRow(ctx context.Context, r Reader, table, row string, cols ...Column) (found Row, ok bool,
	err error) {
	for found, err = range ScanRows(ctx, r, Rows(table).only(row), cols...) {
		return found, err == nil, err
	}
	return Row{}, false, nil
}

// ScanRows is like Reader's Scan, and yields whole rows, one at a time. With columns a row has
// only those, and rows that have none of them are left out. The cells of a row are in the
// order of their columns also after Reverse. After an error it ends; the row in which that
// came is not yielded.
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

// DeleteRow buffers the deletion of all cells that the transaction sees in a row of the table,
// those that it has buffered itself among them. It conflicts with whoever writes one of these
// cells; one that another transaction adds to the row at the same time stays.
func (tx *Tx) DeleteRow(ctx context.Context, table, row string) error {
	for c, err := range tx.Scan(ctx, Rows(table).only(row)) {
		if err != nil {
			return err
		}
		tx.Delete(row, c.Column)
	}
	return nil
}

// Deleted says how far a DeleteRange has come.
type Deleted struct {
	Rows, Cells int // how many have been deleted
	// Done: nothing of the range was left when it was looked at. If not, Next is the first row
	// that has not been looked at, or not been deleted as a whole, and another call goes on
	// with the same range from there: rows.From(d.Next).
	Done bool
	Next string
}

// Bounds of one transaction of DeleteRange.
const (
	maxDeleteCells = 1000
	maxDeleteBytes = 1 << 20 // of rows and columns, with deleteCellCost for each cell
	deleteCellCost = 64
)

// DeleteRange deletes all rows of a range, in as many transactions as it takes: each deletes
// up to a thousand cells, of rows as a whole unless one alone has more, and is repeated on a
// conflict with less. It is not one transaction: others see some of the rows deleted and some
// not, and what is written behind it stays. Observers of deleted cells run.
//
// It returns how far it has come even when it fails. It stops with ctx's error when ctx ends,
// which is how to bound its time, and with ErrCommitUnknown when the last transaction may
// have deleted more than Deleted says. Either way a later call, also by another process, may
// go on at Next. Rows(…).Limit(n) deletes n rows, so that a caller can pause in between, and
// Limit(0) none. A range in Reverse is refused with ErrInvalid.
func (db *DB) DeleteRange(ctx context.Context, rows RowRange) (Deleted, error) {
	all := Deleted{Next: rows.from}
	if rows.reverse {
		return all, txn.Invalid("a range is deleted from its first row on, not in reverse")
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

// deleteSome deletes the first rows of a range in one transaction.
func (db *DB) deleteSome(ctx context.Context, rows RowRange) (d Deleted, err error) {
	most := 2 * maxDeleteCells
	err = db.Transact(ctx, func(ctx context.Context, tx *Tx) error {
		// Whoever writes one of the cells meanwhile has this begin again: with fewer cells
		// it is the sooner done.
		most = max(most/2, 1)
		d, err = deleteUpTo(ctx, tx, rows, most)
		return err
	}, Name("delete range"))
	return d, err
}

// deleteUpTo deletes up to most cells of a range, and says what it has left.
func deleteUpTo(ctx context.Context, tx *Tx, rows RowRange, most int) (d Deleted, err error) {
	var cells []CellKey // of the row that is looked at, to be deleted once it is whole
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
			if d.Cells == 0 { // this row alone takes several transactions
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
