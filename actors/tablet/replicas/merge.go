package replicas

import (
	"slices"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the tasks that are about the replicas of two tablets at once, since the one
// has taken, or is about to take, the rows of the other. A replica whose tablet is no more
// goes in one of three ways: with the entry by which the left tablet's replica here takes
// its rows; with a snapshot that spares that replica the entry; or, where the left tablet
// has no replica here that could need it, like one that was removed.

// together runs the task, in a task of the tablet, while the others are busy as well. If one
// is already, the task is queued again behind what that has to do: it never waits.
func (s *Set) together(tablet uint64, others []uint64, task func()) {
	s.mu.Lock()
	for _, id := range others {
		if h := s.held[id]; h != nil && h.busy {
			h.waiting = append(h.waiting, func() {
				s.enqueue(tablet, func() { s.together(tablet, others, task) })
			})
			s.mu.Unlock()
			return
		}
	}
	for _, id := range others {
		s.holdLocked(id).busy = true
	}
	s.mu.Unlock()
	task()
	for _, id := range others {
		s.next(id)
	}
}

// Merge has the stored replicas of two tablets made one, and opens it. The left one's actor
// has stopped at the entry that says so.
func (s *Set) Merge(m *snapshot.Merge) {
	left, right := m.Merged.TabletId, m.Right.TabletId
	s.enqueue(left, func() {
		s.together(left, []uint64{right}, func() { s.merge(m) })
	})
}

// merge is the task of Merge. If the right replica is not here as it has to be, the left one
// stays closed: opened again it would come to the same entry.
func (s *Set) merge(m *snapshot.Merge) {
	left, right := m.Merged.TabletId, m.Right.TabletId
	have := s.current(left)
	if have == 0 { // it was removed meanwhile
		return
	}
	err := s.stop(left)
	if err == nil {
		err = s.stop(right)
	}
	if err == nil {
		err = s.installer.Merge(m)
	}
	if err == nil {
		s.gone(right)
		err = s.open(left, have)
	} else if s.current(right) != 0 {
		if again := s.reopen(right); again != nil {
			s.setClosed(right, again)
		}
	}
	if err != nil {
		s.setClosed(left, err)
		s.logger.Error("two tablets could not be merged here; it is tried again", "tablet", left,
			"with", right, "error", err)
	}
}

// gone notes that nothing is left of the tablet's replica here.
func (s *Set) gone(tablet uint64) {
	s.owner.Destroyed(tablet)
	s.arrivals.forget(tablet)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[tablet]; h != nil {
		h.id, h.closed, h.stale = 0, nil, false
	}
}

// needed reports whether a replica here needs this one to take its rows.
func (s *Set) needed(r *snapshot.Replica) (bool, error) {
	if r.FrozenFor == nil {
		return false, nil
	}
	left, ok, err := snapshot.StoredReplica(s.store, r.FrozenFor.TabletId)
	return ok && r.NeededBy(&left), err
}

// takenBy reports whether the replica is one that the tablet's own replica here still
// needs, and that a snapshot of the tablet as described spares it.
func takenBy(r *snapshot.Replica, stored []snapshot.Replica, id uint64,
	d *pb.TabletDescriptor) bool {
	return !r.Marked && wire.Supersedes(d, r.Descriptor) &&
		slices.ContainsFunc(stored, func(left snapshot.Replica) bool {
			return left.Tablet == id && r.NeededBy(&left)
		})
}

// taken returns the replicas here that takenBy reports.
func (s *Set) taken(id uint64, d *pb.TabletDescriptor) (out []snapshot.Replica, err error) {
	stored, err := snapshot.StoredReplicas(s.store)
	for _, r := range stored {
		if takenBy(&r, stored, id, d) {
			out = append(out, r)
		}
	}
	return out, err
}

// dropSuperseded has the replicas destroyed that d shows to be of tablets that are no more,
// and that no replica here needs.
func (s *Set) dropSuperseded(d *pb.TabletDescriptor) {
	stored, err := snapshot.StoredReplicas(s.store)
	if err != nil {
		s.logger.Error("replicas of merged tablets could not be looked for", "error", err)
		return
	}
	for _, r := range stored {
		needed := slices.ContainsFunc(stored, func(left snapshot.Replica) bool { return r.NeededBy(&left) })
		if !r.Marked && !needed && wire.Supersedes(d, r.Descriptor) {
			s.logger.Info("a replica's tablet was merged into another", "tablet", r.Tablet, "into", d.TabletId)
			s.removed(r.Tablet, r.ReplicaID)
		}
	}
}
