package store

import "time"

// spaceInterval is how often the free space is looked at when nothing is written.
const spaceInterval = time.Second

// reclaimLoop watches the free space and lets go of old versions until the store closes. It is the store's only background
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

// Reclaim tells Badger what no open Snap can see any more; its compactors give up the space in their own time. There is
// no value log to collect (chunk.go). The background worker calls it, so that the end of a long Snap is noticed without
// writes; others may.
func (s *Store) Reclaim() {
	for _, d := range s.databases() {
		if seq, ok := d.seq.advanceDiscard(); ok {
			d.db.SetDiscardTs(seq)
		}
	}
}
