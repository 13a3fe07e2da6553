package replicas

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Removal of replicas, only after a committed change has removed them from their group. Removed may
// be called by any goroutine; the rest is a task of the tablet, or runs on inspect's goroutine.
// Removals under way are only in the queue: after a crash, the tombstone in the store or another
// query to meta leads to them again.
//
// A replica that was down while it was removed receives no more messages. After a while meta is
// queried.
const (
	silentFor  = time.Minute
	askAgain   = 5 * time.Minute
	askAtOnce  = 256
	askTimeout = 5 * time.Second
)

// RemovedHere destroys the tablet's current replica here. The actor calls it after it has applied
// its own removal, or has learned of it from another replica.
func (s *Set) RemovedHere(id uint64) {
	if replica := s.current(id); replica != 0 {
		s.removed(id, replica)
	}
}

// removed destroys the replica, or a lower one that is here.
func (s *Set) removed(id, replica uint64) {
	s.enqueue(id, func() {
		if err := s.destroy(id, replica); err != nil {
			s.logger.Error("cannot destroy a removed replica; it is tried again later",
				"tablet", id, "error", err)
		}
	})
}

// destroy removes the tablet's replica here if it is the named one or a lower one: a higher one was
// created after the removal. It is called in a task of the tablet.
func (s *Set) destroy(id, replica uint64) error {
	have := s.current(id)
	if have > replica {
		return nil
	}
	if have != 0 {
		if err := s.stop(id); err != nil {
			return err
		}
	}
	// Destroy it even if none is here: the tombstone prevents late messages from creating it.
	if err := s.installer.Destroy(id, replica+1); err != nil {
		return err
	}
	s.gone(id)
	return nil
}

// silent returns replicas, by tablet, that have not received a message for long, at most
// askAtOnce of them.
func (s *Set) silent(now time.Time) map[uint64]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint64]uint64{}
	for id, h := range s.held {
		// Meta may not be up to date yet: ask about each replica again, but at most once per
		// askAgain.
		if h.id == 0 || h.busy || now.Sub(h.heard) < silentFor || now.Sub(h.asked) < askAgain {
			continue
		}
		h.asked = now
		if out[id] = h.id; len(out) == askAtOnce {
			break
		}
	}
	return out
}

// askAbout has those replicas, by tablet, destroyed that have missed their removal
// (missedRemoval). It reads meta once for all: quiescent replicas receive no messages either, and
// there may be thousands.
func (s *Set) askAbout(silent map[uint64]uint64) {
	if len(silent) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, askTimeout)
	defer cancel()
	described, err := s.owner.Reread(ctx)
	if err != nil {
		return // meta is asked again later
	}
	for id, replica := range silent {
		if s.missedRemoval(id, replica, described) {
			s.logger.Info("a replica missed that it was removed", "tablet", id, "replica", replica)
			s.removed(id, replica)
		}
	}
}

// missedRemoval reports whether meta's record of the tablet shows that the replica was removed, or
// that of another tablet that this one no longer exists; in that case it returns false while a
// replica here needs this one for a merge.
func (s *Set) missedRemoval(id, replica uint64,
	described func(*pb.TabletDescriptor) *pb.TabletDescriptor) bool {
	r, ok, err := snapshot.StoredReplica(s.store, id)
	if !ok || err != nil || r.ReplicaID != replica {
		return false
	}
	d := described(r.Descriptor)
	if d == nil {
		return false
	}
	if wire.Supersedes(d, r.Descriptor) {
		needed, err := s.needed(&r)
		return err == nil && !needed
	}
	// A record from before the replica was added does not list it either: its id was not
	// assigned yet.
	return d.TabletId == id && d.Epoch > r.Descriptor.GetEpoch() && group.WasRemoved(d, replica)
}
