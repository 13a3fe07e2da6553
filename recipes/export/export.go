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
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

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
	// an error that wraps percolator.ErrUnavailable, and is called again later, while the
	// batch's other rows are applied. It is called for several rows at once.
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

// Fill gives all that the column holds in a snapshot to the sink: to one that is new, or has
// lost what it had. It may run beside the observer, since versions decide. Rows that have
// moved on are left out, and then complete is false: the observer is to export them, unless
// it has already, and the sink has lost it since.
func Fill[V any](ctx context.Context, r percolator.Reader, cfg Config[V]) (complete bool,
	err error) {
	complete = true
	flush := func(cells []percolator.Cell) error {
		changes := make([]Change[V], len(cells))
		for i, c := range cells {
			changes[i] = Change[V]{Row: c.Row, Version: c.CommitTS}
		}
		var there []Change[V]
		for i, err := range cfg.read(ctx, r, changes, cells) {
			switch {
			case err == nil:
				there = append(there, changes[i])
			case errors.Is(err, percolator.ErrUnavailable):
				complete = false
			default:
				return err
			}
		}
		if len(there) == 0 {
			return nil
		}
		return cfg.Apply(ctx, there)
	}
	var cells []percolator.Cell
	for c, err := range r.Scan(ctx, percolator.Rows(cfg.Column.Table), cfg.Column) {
		if err != nil {
			return false, err
		}
		if cells = append(cells, c); len(cells) == percolator.DefaultBatch {
			if err := flush(cells); err != nil {
				return false, err
			}
			cells = cells[:0]
		}
	}
	return complete, flush(cells)
}

// run exports one batch, but for the rows that cannot be read. It writes nothing: its
// transaction holds the acknowledgments.
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
		changes[i] = Change[V]{Row: n.Row, Version: n.TS}
	}
	there, failed := changes[:0:0], map[string]error{}
	for i, err := range cfg.read(ctx, tx, changes, cells) {
		if err != nil {
			failed[changes[i].Row] = err
		} else {
			there = append(there, changes[i])
		}
	}
	if len(there) > 0 {
		if err := cfg.Apply(ctx, there); err != nil {
			return err
		}
	}
	return &percolator.PartialError{Failed: failed}
}

// readsAtOnce bounds how many rows are read at once.
const readsAtOnce = 16

// read fills in the values of changes, or that they are gone, and returns what went wrong
// with each. cells are those that exist, in the order of the changes.
func (cfg Config[V]) read(ctx context.Context, r percolator.Reader, changes []Change[V],
	cells []percolator.Cell) []error {
	errs := make([]error, len(changes))
	var group errgroup.Group
	group.SetLimit(readsAtOnce)
	for i := range changes {
		c := &changes[i]
		if len(cells) == 0 || cells[0].Row != c.Row {
			c.Gone = true
			continue
		}
		value := cells[0].Value
		cells = cells[1:]
		group.Go(func() error {
			defer func() { // nobody else could, and it would end the process
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("export %q: panic: %v\n%s", cfg.Name, p, debug.Stack())
				}
			}()
			c.Value, errs[i] = cfg.Read(ctx, r, c.Row, value)
			return nil
		})
	}
	_ = group.Wait() // errs has them
	return errs
}
