package percolator

import (
	"context"
	"iter"
	"slices"

	"github.com/percolator-go/percolator/internal/txn"
)

// Reader reads one snapshot. *Tx and *Snapshot implement it. Its methods are safe for
// concurrent use.
type Reader interface {
	// Get reads one cell. ok is false if it does not exist. The value belongs to the caller.
	Get(ctx context.Context, row string, col Column) (value []byte, ok bool, err error)
	// GetMulti reads many cells with one message per tablet. It returns the cells that
	// exist, in the order of keys.
	GetMulti(ctx context.Context, keys ...CellKey) ([]Cell, error)
	// Scan yields the cells of the rows, ordered by row, then by column (both descending
	// after Reverse). Without cols it yields all columns; each of cols must belong to the
	// range's table. An error is the last element of the sequence.
	Scan(ctx context.Context, rows RowRange, cols ...Column) iter.Seq2[Cell, error]
}

// RowRange is a range of rows of one table. Its methods return a narrowed copy. The order of
// calls does not matter, except that a later Limit or Columns replaces an earlier one.
type RowRange struct {
	table     string
	from      string
	before    string
	hasBefore bool
	reverse   bool
	limit     int // 0: none
	keysOnly  bool
	columns   *[]string // a pointer, so that a RowRange is comparable; nil: all columns
}

// Rows returns the range of all rows of the table.
func Rows(table string) RowRange { return RowRange{table: table} }

// Prefix restricts the range to rows that begin with p.
func (r RowRange) Prefix(p string) RowRange {
	r = r.From(p)
	if end, ok := prefixEnd(p); ok {
		r = r.Before(end)
	}
	return r
}

// From restricts the range to rows ≥ row.
func (r RowRange) From(row string) RowRange {
	r.from = max(r.from, row)
	return r
}

// Before restricts the range to rows < row.
func (r RowRange) Before(row string) RowRange {
	if !r.hasBefore || row < r.before {
		r.before, r.hasBefore = row, true
	}
	return r
}

// Reverse makes a scan yield the rows in descending order.
func (r RowRange) Reverse() RowRange {
	r.reverse = true
	return r
}

// Limit ends a scan after n rows with at least one yielded cell. Zero or less means no limit.
func (r RowRange) Limit(n int) RowRange {
	r.limit = max(n, 0)
	return r
}

// KeysOnly makes a scan yield cells with a nil Value, and their commit timestamps. Long values are
// not read, and none is sent.
func (r RowRange) KeysOnly() RowRange {
	r.keysOnly = true
	return r
}

// Columns restricts DB.Changes, DB.DeleteRange, and a Scan without columns, to the columns of these
// names; without names it restricts nothing.
func (r RowRange) Columns(names ...string) RowRange {
	names = slices.Clone(names)
	r.columns = &names
	return r
}

// prefixEnd returns the least string greater than all strings that begin with p; ok is false
// if there is none.
func prefixEnd(p string) (end string, ok bool) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			return p[:i] + string([]byte{p[i] + 1}), true
		}
	}
	return "", false
}

// spec converts the range and the columns for internal/txn.
func (r RowRange) spec(cols []Column) (txn.ScanSpec, error) {
	s := txn.ScanSpec{
		Table: r.table, From: r.from, Before: r.before, HasBefore: r.hasBefore, Reverse: r.reverse,
		Limit: r.limit, KeysOnly: r.keysOnly,
	}
	if r.columns != nil && len(cols) == 0 {
		s.Columns = *r.columns
	}
	for _, c := range cols {
		if c.Table != r.table {
			return s, txn.Invalid("column %q belongs to table %q, but the range is of table %q",
				c.Name, c.Table, r.table)
		}
		s.Columns = append(s.Columns, c.Name)
	}
	return s, nil
}

// scan converts the results of a scan of internal/txn.
func scan(ctx context.Context, from txn.Reader, rows RowRange, cols []Column) iter.Seq2[Cell,
	error] {
	return func(yield func(Cell, error) bool) {
		spec, err := rows.spec(cols)
		if err != nil {
			yield(Cell{}, err)
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

// getMulti converts the keys and results of a GetMulti of internal/txn.
func getMulti(ctx context.Context, from txn.Reader, keys []CellKey) ([]Cell, error) {
	txnKeys := make([]txn.Key, len(keys))
	for i, k := range keys {
		txnKeys[i] = txn.Key{Table: k.Column.Table, Row: k.Row, Column: k.Column.Name}
	}
	values, err := from.GetMulti(ctx, txnKeys)
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
