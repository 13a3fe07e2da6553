// Package export copies a column to an external sink, such as a search engine, a cache or
// another database, effectively once and in order per row.
//
// A batched strong observer reads the changed rows and passes a batch to the sink in one call.
// It acknowledges the changes only after the sink has made them durable. After the death of a
// process or the failure of a batch, changes are exported again, and the newer of two runs for
// a row may reach the sink first. Each change therefore has a version, which increases with
// every change of the row. The sink stores it with the value and ignores changes that are not
// newer, which makes the export effectively once and in order.
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

// Change is one version of a row's value.
type Change[V any] struct {
	Row     string
	Version percolator.Timestamp // commit timestamp of the change
	Gone    bool                 // the cell was deleted; Value is the zero V
	Value   V
}

// Config configures an export.
type Config[V any] struct {
	Name   string // name of the observer, unique in the cluster
	Column percolator.Column
	// Read converts the cell's value to the exported value. It may read other cells, but its
	// result must depend only on the version, since the sink accepts a version only once. If
	// the other cells belong to a newer version, it returns an error that wraps
	// percolator.ErrUnavailable and is called again later; the other rows of the batch are
	// applied. Read is called concurrently for several rows.
	Read func(ctx context.Context, r percolator.Reader, row string, value []byte) (V, error)
	// Apply makes changes of distinct rows durable before it returns nil. Per row it stores
	// the version with the value, or with the fact that the row is gone, and ignores changes
	// whose version is not greater than the stored one. It may be called concurrently. After
	// an error it is called again with the changes, possibly in other batches; a change that
	// always fails is parked alone.
	Apply func(ctx context.Context, changes []Change[V]) error
}

// Register registers the observer of the export. The options Batch and Concurrency bound the
// changes per call of Apply and the concurrent calls in one process. Register panics with
// percolator.ErrInvalid if Read or Apply is nil.
func Register[V any](r *percolator.Registry, cfg Config[V], opts ...percolator.ObserverOption) {
	if cfg.Read == nil || cfg.Apply == nil {
		panic(fmt.Errorf("%w: export %q: Read and Apply are required",
			percolator.ErrInvalid, cfg.Name))
	}
	r.StrongBatch(cfg.Name, cfg.Column, cfg.run, opts...)
}

// Fill exports all cells of the column in a snapshot, for a sink that is new or has lost its
// data. It may run concurrently with the observer, since the sink compares versions. Fill skips
// rows for which Read returns percolator.ErrUnavailable, and then returns complete as false:
// the observer exports their newer version, unless it did so before the sink lost its data.
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

// run exports one batch, except rows for which Read fails. Its transaction contains only the
// acknowledgments.
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
		changes[i] = Change[V]{Row: n.Row, Version: n.CommitTS}
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

// readsAtOnce is the maximum number of concurrent calls of Read per batch.
const readsAtOnce = 16

// read sets Value or Gone of the changes, and returns an error for each. cells has the existing
// cells, in the order of changes.
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
			defer func() { // a panic in this goroutine would end the process
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("export %q: panic: %v\n%s", cfg.Name, p, debug.Stack())
				}
			}()
			c.Value, errs[i] = cfg.Read(ctx, r, c.Row, value)
			return nil
		})
	}
	_ = group.Wait() // errors are in errs
	return errs
}
