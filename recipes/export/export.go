// Package export carries what a column holds out of the repository, to a search engine, a
// cache, another database: effectively once, in order for each row.
//
// A batched strong observer reads the rows that have changed and gives all of a batch to
// the sink in one call. Only when the sink says that they are durable are the changes
// acknowledged. A process that dies in between, and a batch that fails, are exported
// again, and of two runs for one row the later may come first. So each change has a
// version, which grows with every change of the row, and the sink keeps it beside the
// value: it ignores what is not newer than what it has. That makes it effectively once,
// and in order.
//
//	column ──▶ observer: reads a batch ──▶ Apply, durable ──▶ acknowledged
//
// For a sink that cannot keep a version, such as a payment service, see package calls.
package export

import (
	"context"
	"fmt"

	percolator "github.com/percolator-go/percolator"
)

// Change is a version of what a row holds.
type Change[V any] struct {
	Row     string
	Version percolator.Timestamp // when the column changed; the later is the greater
	Gone    bool                 // the cell was deleted; Value is the zero V
	Value   V
}

// Config says what is exported, and to where.
type Config[V any] struct {
	Name   string // the observer's, unique in the cluster
	Column percolator.Column
	// Read makes what is exported from the cell's value. It may read other cells, but what
	// it makes has to be the same whenever it reads the same version: the sink takes a
	// version only once. Where it finds that the rest of the row has moved on, it returns
	// an error that wraps percolator.ErrUnavailable, and is called again later.
	Read func(ctx context.Context, r percolator.Reader, row string, value []byte) (V, error)
	// Apply makes changes of different rows durable before it returns nil. Of a row it keeps
	// the value, or that it is gone, with the version, and ignores a change whose version is
	// not greater than what it has. It may be called concurrently. After an error all are
	// given to it again, in part with others. One that fails always is parked by itself.
	Apply func(ctx context.Context, changes []Change[V]) error
}

// Register adds the exporter's observer. Of the options Batch and Concurrency tune it: how many
// changes a call of Apply has at most, and how many calls there are at once in one process.
// It panics with percolator.ErrInvalid if a function is missing, a fault of the program.
func Register[V any](r *percolator.Registry, cfg Config[V], opts ...percolator.ObserverOption) {
	if cfg.Read == nil || cfg.Apply == nil {
		panic(fmt.Errorf("%w: export %q: it needs functions to read and to apply",
			percolator.ErrInvalid, cfg.Name))
	}
	r.StrongBatch(cfg.Name, cfg.Column, cfg.run, opts...)
}

// run exports one batch. It writes nothing: its transaction holds the acknowledgments.
func (cfg Config[V]) run(ctx context.Context, tx *percolator.Tx,
	batch []percolator.Notification) error {
	keys := make([]percolator.CellKey, len(batch))
	for i, n := range batch {
		keys[i] = percolator.CellKey{Row: n.Row, Column: n.Column}
	}
	cells, err := tx.GetMulti(ctx, keys...)
	if err != nil {
		return err
	}
	changes := make([]Change[V], len(batch))
	for i, n := range batch {
		changes[i] = Change[V]{Row: n.Row, Version: n.TS, Gone: true}
		// The cells that exist are in the order in which they were asked for.
		if len(cells) == 0 || cells[0].Row != n.Row {
			continue
		}
		changes[i].Gone = false
		if changes[i].Value, err = cfg.Read(ctx, tx, n.Row, cells[0].Value); err != nil {
			return err
		}
		cells = cells[1:]
	}
	return cfg.Apply(ctx, changes)
}
