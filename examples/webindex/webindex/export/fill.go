package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	recipe "github.com/percolator-go/percolator/recipes/export"
)

// Config is the location of the index and its batching.
type Config struct {
	Dir     string         // holds the index and nothing else
	Cluster string         // id of the repository; an index of another one is replaced
	DB      *percolator.DB // the repository
	Anew    bool           // replace the index by a new one
	// Linger is the minimum interval between batches of the observer; a full batch does not wait.
	// A batch costs Bleve two syncs and a segment to merge later, about 20 ms of CPU, so that
	// infrequent batches suit a steady trickle of changes.
	Linger time.Duration
}

// Start opens the index and begins to export. Start fills a new index with the pages in the
// repository before it returns, except pages that are being changed; see Fill.
func (x *Exporter) Start(ctx context.Context, cfg Config) error {
	index, err := openIndex(cfg.Dir, cfg.Cluster, cfg.Anew)
	if err != nil {
		return err
	}
	if err := index.bury(ctx); err != nil {
		return errors.Join(err, index.Close())
	}
	x.start(index, index, cfg.Linger)
	_, err = x.Fill(ctx, cfg.DB)
	return err
}

// start begins to export to a sink, which is the index except in tests.
func (x *Exporter) start(index *Index, s sink, linger time.Duration) {
	x.turn <- struct{}{} // an observer may call Apply already
	defer func() { <-x.turn }()
	x.index, x.sink, x.linger = index, s, linger
}

// Fill exports every canonical page to an index that has not been filled yet. It may run
// concurrently with the observer, since newer versions win. It omits pages that are being changed;
// then complete is false, and it must be called again when the database is idle.
func (x *Exporter) Fill(ctx context.Context, db *percolator.DB) (complete bool, err error) {
	if filled, err := x.index.filled(); filled || err != nil {
		return filled, err
	}
	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	complete, err = recipe.Fill(ctx, snapshot, x.config())
	if err != nil {
		return false, fmt.Errorf("export: fill: %w", err)
	}
	if !complete {
		return false, nil
	}
	return true, x.index.setFilled()
}
