package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// Config says where the index is.
type Config struct {
	Dir     string         // of the index alone
	Cluster string         // id of the repository: an index of another one is thrown away
	DB      *percolator.DB // the repository
	Anew    bool           // throw the index away and fill a new one
	// Linger is how long the first change of a batch waits for others. A batch costs
	// Bleve two syncs and a segment to merge later, about 20 ms of CPU, so that a steady
	// trickle is better written a few times a second. 0: not at all.
	Linger time.Duration
}

// Start opens the index and begins to export. A new index is filled with what the
// repository holds; Start returns when that is done as far as it can be, see Fill.
func (x *Exporter) Start(ctx context.Context, cfg Config) error {
	index, err := openIndex(cfg.Dir, cfg.Cluster, cfg.Anew)
	if err != nil {
		return err
	}
	if err := index.bury(ctx); err != nil {
		return errors.Join(err, index.Close())
	}
	x.index, x.linger = index, cfg.Linger
	x.start(index)
	_, err = x.Fill(ctx, cfg.DB)
	return err
}

// Fill exports every canonical page to an index that has not been filled yet. It may run
// beside the observers: versions decide. Pages that are just changing are left out, and
// then complete is false: call it again when the repository is idle.
func (x *Exporter) Fill(ctx context.Context, db *percolator.DB) (complete bool, err error) {
	if filled, err := x.index.filled(); filled || err != nil {
		return filled, err
	}
	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	moved := x.moved.Load()
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(concurrency)
	for c, err := range snapshot.Scan(ctx, percolator.Rows(schema.TablePages),
		schema.Pages(schema.Doc)) {
		if err != nil {
			return false, errors.Join(fmt.Errorf("export: fill: %w", err), work.Wait())
		}
		work.Go(func() error { return x.fill(ctx, snapshot, c) })
	}
	if err := work.Wait(); err != nil {
		return false, fmt.Errorf("export: fill: %w", err)
	}
	// an observer's run may be among those: then once more is once too often, no harm
	if x.moved.Load() != moved {
		return false, nil
	}
	return true, x.index.setFilled()
}

// fill exports one page. One that has moved on is counted, and is no failure.
func (x *Exporter) fill(ctx context.Context, r percolator.Reader, c percolator.Cell) error {
	doc, err := x.document(ctx, r, c.Row, c.Value)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	return x.Export(ctx, c.Row, c.CommitTS, doc)
}
