package node

import (
	"github.com/percolator-go/percolator/actors/tablet"
)

// A split makes the new tablet's replica in the Txn of its entry, and the actor that has
// applied it says so afterwards. What may come between: the actor is stopped and says
// nothing, or the replica was removed while the entry was being written.

// openStored opens a replica that the store has; one that must not be here any more, by
// its tombstone, is destroyed instead.
func (r *replicas) openStored(s tablet.Replica) error {
	snap := r.store.Snap()
	next, err := tablet.NextReplica(snap, s.Tablet)
	snap.Close()
	if err != nil {
		return err
	}
	if next <= s.ReplicaID {
		return r.open(s.Tablet, s.ReplicaID)
	}
	r.logger.Warn("a split has made a replica that was removed from here before", "tablet", s.Tablet, "replica", s.ReplicaID)
	r.mu.Lock()
	r.holder(s.Tablet)
	r.mu.Unlock()
	return r.destroy(s.Tablet, s.ReplicaID)
}

// openUnheard opens what the store has and nobody has opened, once the actor has stopped
// that may have applied a split without saying so.
func (r *replicas) openUnheard() {
	stored, err := tablet.StoredReplicas(r.store)
	if err != nil {
		r.logger.Error("tablets that a split has made could not be looked for", "error", err)
		return
	}
	for _, s := range stored {
		r.mu.Lock()
		h := r.held[s.Tablet]
		r.mu.Unlock()
		if h == nil { // nothing is known of it, and nothing under way for it
			r.SplitApplied(s.Tablet)
		}
	}
}

// isHere is nil if the replica is this node's of the tablet, open or about to be.
func (r *replicas) isHere(tablet, replica uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.held[tablet]; h == nil || h.id != replica {
		return errElsewhere
	}
	return nil
}
