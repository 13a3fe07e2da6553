package store

import (
	"errors"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Value log collection: a file is rewritten when that share of it is garbage, and so many files at most in one pass.
const (
	discardRatio   = 0.5
	rewritesPerRun = 8

	spaceInterval = time.Second
)

// reclaimLoop watches the free space and collects garbage until the store closes. It is the store's only background
// goroutine besides Badger's own.
func (s *Store) reclaimLoop() {
	space := time.NewTicker(spaceInterval)
	defer space.Stop()
	collect := time.NewTicker(s.opts.ReclaimInterval)
	defer collect.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-space.C:
			s.lookAtSpace()
		case <-collect.C:
			s.Reclaim()
		}
	}
}

// Reclaim tells Badger what no open Snap can see any more, and rewrites value log files that are mostly garbage: at most
// a few, the rest next time. Compaction itself is Badger's own. The background worker calls it; others may.
func (s *Store) Reclaim() {
	for _, d := range s.databases() {
		if seq, ok := d.seq.advanceDiscard(); ok {
			d.db.SetDiscardTs(seq)
		}
		s.collectValueLog(d)
	}
}

func (s *Store) collectValueLog(d *database) {
	if s.opts.InMemory {
		return
	}
	for range rewritesPerRun {
		select {
		case <-s.stop:
			return
		default:
		}
		switch err := d.db.RunValueLogGC(discardRatio); {
		case errors.Is(err, badger.ErrNoRewrite), errors.Is(err, badger.ErrRejected):
			return
		case err != nil:
			s.opts.Logger.Warn("store: value log collection", "error", err)
			return
		}
	}
}
