// Package index keeps a secondary index: from what a column holds to the rows that hold it.
//
// A strong observer of the column writes the index. Beside the entries it keeps what is
// indexed of each row now, so that it can delete entries that no longer hold: whatever runs
// are repeated, or collapsed, the entries of a row are those of its newest value that has
// been indexed. They are behind the column by the time that a run takes to start. Where
// that is too late, a transaction that writes the column calls Update itself.
package index

import (
	"context"
	"fmt"
	"iter"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Index is a secondary index. It holds no state, and its methods may be called
// concurrently.
type Index struct {
	cfg     Config
	entry   percolator.Column
	indexed percolator.TypedColumn[[][]byte]
}

// Config says what is indexed.
type Config struct {
	// Name is the observer's, unique in the cluster. Table is where the index is kept, Name
	// unless given; the application makes it, as by Registry.Table.
	Name  string
	Table string
	// Column is what is indexed.
	Column percolator.Column
	// Keys returns under which keys a value is found; nil: under the value itself. None:
	// not at all. Keys are any bytes; a key and a row together have to fit into a row.
	Keys func(value []byte) ([]string, error)
}

// The first element of a row of the index's table says what it is.
const (
	rowOfIndexed = 0 // then a row: the keys under which it is found
	rowOfEntry   = 1 // then a key and a row that is found under it
)

// New returns the index. A faulty configuration is a fault of the program: it panics with
// percolator.ErrInvalid.
func New(cfg Config) *Index {
	if cfg.Name == "" || cfg.Column.Table == "" {
		panic(fmt.Errorf("%w: index %q: it needs a name and a column", percolator.ErrInvalid, cfg.Name))
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

// Register adds the index's observer.
func (x *Index) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	r.Strong(x.cfg.Name, x.cfg.Column,
		func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			return x.Update(ctx, tx, n.Row)
		}, opts...)
}

// Update brings the entries of the row in line with what the transaction sees in the
// column, its own writes included.
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
	// Written in any case, so that an update by a transaction and the observer's run
	// conflict, and the later of them decides.
	if len(now) == 0 {
		x.indexed.Delete(tx, about)
	} else {
		x.indexed.Set(tx, about, now)
	}
	return nil
}

func (x *Index) row(key, row string) string { return tuple.Pack(rowOfEntry, key, row) }

// Lookup yields the rows that are found under the key, in their order.
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

// Entry is a row that is found under a key.
type Entry struct{ Key, Row string }

// All yields all entries, by key and row.
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
