// Package index maintains a secondary index: from the values of a column to their rows.
//
// A strong observer of the column writes the index. In addition to the entries it stores the
// indexed keys of each row, so that it can delete stale entries: even if runs are repeated or
// collapsed, the entries of a row are those of its newest indexed value. The index lags the
// column by the time until the observer runs. To avoid the lag, a transaction that writes the
// column calls Update.
package index

import (
	"context"
	"fmt"
	"iter"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Index is a secondary index. It is stateless, and its methods are safe for concurrent use.
type Index struct {
	cfg     Config
	entry   percolator.Column
	indexed percolator.TypedColumn[[][]byte]
}

// Config configures an Index.
type Config struct {
	// Name is the name of the observer, unique in the cluster.
	Name string
	// Table is the table of the index. Defaults to Name.
	Table string
	// Column is the indexed column.
	Column percolator.Column
	// Keys returns the keys of a value, possibly none. Keys may contain any bytes; a key and
	// a row together must fit into a row. Defaults to the value itself.
	Keys func(value []byte) ([]string, error)
}

// The first element of a row of the index's table is its type.
const (
	rowOfIndexed = 0 // then an indexed row; its cell has the row's keys
	rowOfEntry   = 1 // then a key and an indexed row
)

// New returns an Index. It panics with percolator.ErrInvalid if cfg is invalid.
func New(cfg Config) *Index {
	if cfg.Name == "" || cfg.Column.Table == "" {
		panic(fmt.Errorf("%w: index %q: Name and Column are required", percolator.ErrInvalid, cfg.Name))
	}
	if cfg.Table == "" {
		cfg.Table = cfg.Name
	}
	if cfg.Keys == nil {
		cfg.Keys = func(value []byte) ([]string, error) { return []string{string(value)}, nil }
	}
	return &Index{
		cfg: cfg, entry: percolator.Column{Table: cfg.Table, Name: "entry"},
		indexed: percolator.Typed(percolator.Column{Table: cfg.Table, Name: "indexed"},
			percolator.JSON[[][]byte]()),
	}
}

// Register registers the index's observer and table.
func (x *Index) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	r.Table(percolator.TableSpec{Name: x.cfg.Table})
	r.Strong(x.cfg.Name, x.cfg.Column,
		func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			return x.Update(ctx, tx, n.Row)
		}, opts...)
}

// Update updates the entries of the row to the value that the transaction sees, including its
// own writes.
func (x *Index) Update(ctx context.Context, tx *percolator.Tx, row string) error {
	value, ok, err := tx.Get(ctx, row, x.cfg.Column)
	if err != nil {
		return err
	}
	var keys []string
	if ok {
		if keys, err = x.cfg.Keys(value); err != nil {
			return err
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	about := tuple.Pack(rowOfIndexed, row)
	old, _, err := x.indexed.Get(ctx, tx, about)
	if err != nil {
		return err
	}
	now := make([][]byte, len(keys))
	for i, key := range keys {
		now[i] = []byte(key)
		tx.Set(x.row(key, row), x.entry, nil)
	}
	for _, key := range old {
		if _, stays := slices.BinarySearch(keys, string(key)); !stays {
			tx.Delete(x.row(string(key), row), x.entry)
		}
	}
	// Write even if unchanged, so that concurrent updates of the row conflict and the later
	// one wins.
	if len(now) == 0 {
		x.indexed.Delete(tx, about)
	} else {
		x.indexed.Set(tx, about, now)
	}
	return nil
}

func (x *Index) row(key, row string) string { return tuple.Pack(rowOfEntry, key, row) }

// Lookup yields the rows with the key, in row order.
func (x *Index) Lookup(ctx context.Context, r percolator.Reader, key string) iter.Seq2[string,
	error] {
	return func(yield func(string, error) bool) {
		for e, err := range x.scan(ctx, r, tuple.Prefix(rowOfEntry, key)) {
			if !yield(e.Row, err) || err != nil {
				return
			}
		}
	}
}

// Entry is a key and a row that has it.
type Entry struct{ Key, Row string }

// All yields all entries, ordered by key and row.
func (x *Index) All(ctx context.Context, r percolator.Reader) iter.Seq2[Entry, error] {
	return x.scan(ctx, r, tuple.Prefix(rowOfEntry))
}

func (x *Index) scan(ctx context.Context, r percolator.Reader, prefix string) iter.Seq2[Entry,
	error] {
	return func(yield func(Entry, error) bool) {
		for cell, err := range r.Scan(ctx, percolator.Rows(x.cfg.Table).Prefix(prefix), x.entry) {
			var kind int
			var e Entry
			if err == nil {
				err = tuple.Unpack(cell.Row, &kind, &e.Key, &e.Row)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
