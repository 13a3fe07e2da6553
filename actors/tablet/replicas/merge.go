package replicas

import (
	"slices"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Tasks that involve the replicas of two tablets, one of which has taken, or is about to
// take, the rows of the other. A replica whose tablet no longer exists is removed in one of
// three ways: by the entry with which the left tablet's replica here takes its rows; by a
// snapshot from after that entry; or, if no replica of the left tablet here needs it, as if
// its group had removed it.

// together runs the task, in a task of the tablet, while it marks the others busy. If one of
// them is busy already, it queues the task again behind that one's tasks: it never blocks.
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

// Merge merges the stored replicas of two tablets, and opens the result. The left one's actor
// has stopped at the entry of the merge.
func (s *Set) Merge(m *snapshot.Merge) {
	left, right := m.Merged.TabletId, m.Right.TabletId
	s.enqueue(left, func() {
		s.together(left, []uint64{right}, func() { s.merge(m) })
	})
}

// merge is the task of Merge. If the right replica is not here as it was when frozen, the left one
// is closed until openClosed reopens it: then it reaches the same entry again.
func (s *Set) merge(m *snapshot.Merge) {
	left, right := m.Merged.TabletId, m.Right.TabletId
	have := s.current(left)
	if have == 0 { // the left replica was removed in the meantime
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
		_ = s.reopenOrClose(right)
	}
	if err != nil {
		s.setClosed(left, err)
		s.logger.Error("cannot merge two replicas, will retry", "tablet", left,
			"with", right, "error", err)
	}
}

// gone clears the record of the tablet's replica, which the store no longer has.
func (s *Set) gone(tablet uint64) {
	s.owner.Destroyed(tablet)
	s.arrivals.forget(tablet)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[tablet]; h != nil {
		h.id, h.closed, h.stale = 0, nil, false
	}
}

// needed reports whether another replica here needs this one for a merge.
func (s *Set) needed(r *snapshot.Replica) (bool, error) {
	if r.FrozenFor == nil {
		return false, nil
	}
	left, ok, err := snapshot.StoredReplica(s.store, r.FrozenFor.TabletId)
	return ok && r.NeededBy(&left), err
}

// takenBy reports whether the replica of the tablet id among the stored ones still needs the
// replica r for a merge, and would no longer need it after a snapshot of its tablet with the
// descriptor d.
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

// dropSuperseded destroys the replicas of tablets that, as d shows, no longer exist, unless a
// replica here needs them.
func (s *Set) dropSuperseded(d *pb.TabletDescriptor) {
	stored, err := snapshot.StoredReplicas(s.store)
	if err != nil {
		s.logger.Error("cannot list the replicas of merged tablets", "error", err)
		return
	}
	for _, r := range stored {
		needed := slices.ContainsFunc(stored, func(left snapshot.Replica) bool { return r.NeededBy(&left) })
		if !r.Marked && !needed && wire.Supersedes(d, r.Descriptor) {
			s.logger.Info("removing a replica of a merged tablet", "tablet", r.Tablet, "into", d.TabletId)
			s.removed(r.Tablet, r.ReplicaID)
		}
	}
}
