package index

import (
	"bytes"
	"context"
	"iter"

	percolator "github.com/percolator-go/percolator"
)

// Tx is the part of a transaction that the observers use. Its implementation is tx; tests have
// another.
type Tx interface {
	GetMulti(ctx context.Context, keys ...percolator.CellKey) ([]percolator.Cell, error)
	// Prefix yields the cells of one column in the rows that begin with prefix, by row.
	Prefix(ctx context.Context, prefix string, col percolator.Column) iter.Seq2[percolator.Cell,
		error]
	Set(row string, col percolator.Column, value []byte)
	Delete(row string, col percolator.Column)
	Notify(row string, col percolator.Column)
	// NotifyNow notifies at once, in a separate transaction, whether or not this one commits.
	NotifyNow(ctx context.Context, rows []string, col percolator.Column) error
	// Chunk is the maximum number of rows per call of NotifyNow.
	Chunk() int
}

// chunk is the maximum number of notifications in one transaction.
const chunk = 256

// tx implements Tx with a *percolator.Tx.
type tx struct{ *percolator.Tx }

func (t tx) Prefix(ctx context.Context, prefix string,
	col percolator.Column) iter.Seq2[percolator.Cell, error] {
	return t.Scan(ctx, percolator.Rows(col.Table).Prefix(prefix), col)
}

func (t tx) Chunk() int { return chunk }

func (t tx) NotifyNow(ctx context.Context, rows []string, col percolator.Column) error {
	return percolator.DBFrom(ctx).Transact(ctx, func(_ context.Context, t *percolator.Tx) error {
		for _, row := range rows {
			t.Notify(row, col)
		}
		return nil
	}, percolator.Name("webindex.notify"))
}

// fan notifies all rows, any number of them: full chunks immediately, so that the size of the
// transaction does not grow with the popularity of a page, and the remaining rows when the
// transaction commits. If that fails, the observer runs again and notifies some rows twice.
func fan(ctx context.Context, t Tx, col percolator.Column, rows iter.Seq2[string, error]) error {
	var wait []string
	for row, err := range rows {
		if err != nil {
			return err
		}
		if wait = append(wait, row); len(wait) < t.Chunk() {
			continue
		}
		if err := t.NotifyNow(ctx, wait, col); err != nil {
			return err
		}
		wait = nil
	}
	for _, row := range wait {
		t.Notify(row, col)
	}
	return nil
}

// values maps cells to their values.
type values map[percolator.CellKey][]byte

// get returns the cell's value, or nil if it does not exist.
func (v values) get(row string, col percolator.Column) []byte {
	return v[percolator.CellKey{Row: row, Column: col}]
}

// has reports whether the cell exists, possibly with an empty value.
func (v values) has(row string, col percolator.Column) bool {
	_, ok := v[percolator.CellKey{Row: row, Column: col}]
	return ok
}

// read reads the cells in one request per tablet.
func read(ctx context.Context, t Tx, keys []percolator.CellKey) (values, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	cells, err := t.GetMulti(ctx, keys...)
	if err != nil {
		return nil, err
	}
	v := make(values, len(cells))
	for _, c := range cells {
		v[c.CellKey] = c.Value
	}
	return v, nil
}

// row reads columns of one row.
func row(ctx context.Context, t Tx, row string, cols ...percolator.Column) (values, error) {
	keys := make([]percolator.CellKey, len(cols))
	for i, c := range cols {
		keys[i] = percolator.CellKey{Row: row, Column: c}
	}
	return read(ctx, t, keys)
}

// put sets the cell to value, or deletes it if value is empty. It writes nothing if old, which
// holds the cells that were read, has the same value.
func put(t Tx, old values, row string, col percolator.Column, value []byte) (changed bool) {
	before := old.get(row, col)
	if bytes.Equal(before, value) && old.has(row, col) == (len(value) > 0) {
		return false
	}
	write(t, row, col, value)
	return true
}

// write sets the cell to value, or deletes it if value is empty. It always writes, even if nothing
// changes.
func write(t Tx, row string, col percolator.Column, value []byte) {
	if len(value) == 0 {
		t.Delete(row, col)
		return
	}
	t.Set(row, col, value)
}
