package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	recipe "github.com/percolator-go/percolator/recipes/export"
)

// Config says where the index is.
type Config struct {
	Dir     string         // of the index alone
	Cluster string         // id of the repository: an index of another one is thrown away
	DB      *percolator.DB // the repository
	Anew    bool           // throw the index away and fill a new one
	// Linger is how long after a batch the observer writes the next one at the earliest,
	// unless it is a full one. A batch costs Bleve two syncs and a segment to merge later,
	// about 20 ms of CPU, so that a steady trickle is better written now and then.
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
	x.start(index, index, cfg.Linger)
	_, err = x.Fill(ctx, cfg.DB)
	return err
}

// start begins to export to a sink, which is index but in tests.
func (x *Exporter) start(index *Index, s sink, linger time.Duration) {
	x.turn <- struct{}{} // observers run already
	defer func() { <-x.turn }()
	x.index, x.sink, x.linger = index, s, linger
}

// Fill exports every canonical page to an index that has not been filled yet. It may run
// concurrently with the observer: versions decide. It omits pages that are being changed; then
// complete is false, and it must be called again when the database is idle.
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
