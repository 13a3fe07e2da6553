package percolator

import (
	"context"
	"iter"

	"github.com/percolator-go/percolator/internal/txn"
)

// Reader reads one snapshot. *Tx and *Snapshot implement it; all its methods may be used
// concurrently.
type Reader interface {
	// Get reads one cell. ok is false if it does not exist. The value belongs to the caller.
	Get(ctx context.Context, row string, col Column) (value []byte, ok bool, err error)
	// GetMulti reads many cells at once, in one message per tablet. It returns only those
	// that exist, in the order asked.
	GetMulti(ctx context.Context, keys ...CellKey) ([]Cell, error)
	// Scan yields the cells of the rows in row order, then column order (both descending
	// after Reverse); without columns all of the table's. After an error it ends. All
	// columns must be of the range's table.
	Scan(ctx context.Context, rows RowRange, cols ...Column) iter.Seq2[Cell, error]
}

// RowRange is a range of rows of one table. Its methods narrow a copy; the order of calls
// does not matter.
type RowRange struct {
	table     string
	from      string
	before    string
	hasBefore bool
	reverse   bool
	limit     int  // 0: none
	nothing   bool // Limit(0)
}

// Rows is the range of all rows of the table.
func Rows(table string) RowRange { return RowRange{table: table} }

// Prefix keeps the rows that begin with p.
func (r RowRange) Prefix(p string) RowRange {
	r = r.From(p)
	if end, ok := prefixEnd(p); ok {
		r = r.Before(end)
	}
	return r
}

// From keeps the rows ≥ row.
func (r RowRange) From(row string) RowRange {
	r.from = max(r.from, row)
	return r
}

// Before keeps the rows < row.
func (r RowRange) Before(row string) RowRange {
	if !r.hasBefore || row < r.before {
		r.before, r.hasBefore = row, true
	}
	return r
}

// Reverse makes a scan begin with the last row.
func (r RowRange) Reverse() RowRange {
	r.reverse = true
	return r
}

// Limit ends a scan after n rows that have something to show: after none if n is 0, so
// that what is left of a page can be given as it is. A negative n is no limit.
func (r RowRange) Limit(n int) RowRange {
	r.limit, r.nothing = max(n, 0), n == 0
	return r
}

// prefixEnd is the least string greater than all that begin with p; ok is false if there is none.
func prefixEnd(p string) (end string, ok bool) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			return p[:i] + string([]byte{p[i] + 1}), true
		}
	}
	return "", false
}

// spec translates for internal/txn.
func (r RowRange) spec(cols []Column) (txn.ScanSpec, error) {
	s := txn.ScanSpec{
		Table: r.table, From: r.from, Before: r.before, HasBefore: r.hasBefore, Reverse: r.reverse,
		Limit: r.limit,
	}
	for _, c := range cols {
		if c.Table != r.table {
			return s, txn.Invalid("column %q is of table %q, the scanned rows are of %q", c.Name,
				c.Table, r.table)
		}
		s.Columns = append(s.Columns, c.Name)
	}
	return s, nil
}

// scan adapts a scan of internal/txn.
func scan(ctx context.Context, from txn.Reader, rows RowRange, cols []Column) iter.Seq2[Cell,
	error] {
	return func(yield func(Cell, error) bool) {
		spec, err := rows.spec(cols)
		if err != nil {
			yield(Cell{}, err)
			return
		}
		if rows.nothing {
			return
		}
		for c, err := range from.Scan(ctx, spec) {
			if err != nil {
				yield(Cell{}, err)
				return
			}
			key := CellKey{c.Cell.Row, Column{rows.table, c.Cell.Column}}
			if !yield(Cell{key, c.Value, Timestamp(c.CommitTS)}, nil) {
				return
			}
		}
	}
}

// getMulti adapts a read of many cells.
func getMulti(ctx context.Context, from txn.Reader, keys []CellKey) ([]Cell, error) {
	asked := make([]txn.Key, len(keys))
	for i, k := range keys {
		asked[i] = txn.Key{Table: k.Column.Table, Row: k.Row, Column: k.Column.Name}
	}
	values, err := from.GetMulti(ctx, asked)
	if err != nil {
		return nil, err
	}
	cells := make([]Cell, 0, len(values))
	for i, v := range values {
		if v.Found {
			cells = append(cells, Cell{keys[i], v.Bytes, Timestamp(v.CommitTS)})
		}
	}
	return cells, nil
}
