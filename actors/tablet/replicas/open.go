package replicas

import (
	"errors"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Opening of replicas: those in the store, those that a message requires, and those that a
// split has created. All of it runs on workers, in a task of the tablet. It owns nothing
// but the Set's record of the tablet.
//
// A split creates the new tablet's replica in the Txn of its entry, and the actor that has
// applied it reports it afterwards. In between, the actor may be stopped without a report,
// or the replica removed while the entry was being written.

// open starts a replica's actor, with the id in the store. Its messages may arrive before open
// returns, so the record comes first.
func (s *Set) open(tablet, id uint64) error {
	stale, err := snapshot.IsStale(s.store, tablet, id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	h := s.holdLocked(tablet)
	h.id, h.heard, h.closed = id, time.Now(), nil
	if stale {
		s.setStaleLocked(h)
	}
	s.mu.Unlock()
	return s.owner.OpenReplica(tablet, stale)
}

// stop ends the actor, and returns when all its writes are in the store: from then on a
// task owns the replica's state.
func (s *Set) stop(id uint64) error {
	if err := s.owner.StopReplica(id); err != nil {
		return err
	}
	return s.logs.Barrier()
}

// reopen stops the tablet's actor if it runs, completes an interrupted installation, and opens the
// replica that the store then has, if any.
func (s *Set) reopen(id uint64) error {
	if err := s.stop(id); err != nil {
		return err
	}
	if err := s.installer.Finish(id); err != nil {
		return err
	}
	// Open the replica that the store has now: an installation may have changed its id.
	r, ok, err := snapshot.StoredReplica(s.store, id)
	switch {
	case err != nil:
		return err
	case !ok:
		if s.current(id) != 0 { // another tablet has taken its rows
			s.gone(id)
		}
		return nil
	}
	return s.openStored(r)
}

// reopenOrClose is like reopen, and records an error as the reason why the replica stays closed.
func (s *Set) reopenOrClose(id uint64) error {
	err := s.reopen(id)
	if err != nil {
		s.setClosed(id, err)
	}
	return err
}

// openStored opens a replica in the store. It destroys one that its tombstone forbids instead.
func (s *Set) openStored(r snapshot.Replica) error {
	err := s.checkTombstone(r.Tablet, r.ReplicaID)
	if !errors.Is(err, errTombstone) {
		if err != nil {
			return err
		}
		return s.open(r.Tablet, r.ReplicaID)
	}
	s.logger.Warn("a split has created a replica that this node had removed; it is destroyed",
		"tablet", r.Tablet, "replica", r.ReplicaID)
	return s.destroy(r.Tablet, r.ReplicaID)
}

// checkTombstone returns errTombstone if the replica was removed from here: a removed id is never
// created again.
func (s *Set) checkTombstone(id, replica uint64) error {
	snap := s.store.Snap()
	defer snap.Close()
	next, err := snapshot.NextReplica(snap, id)
	if err == nil && next > replica {
		err = errTombstone
	}
	return err
}

// openUnheard opens replicas in the store that are not open, after an actor has stopped
// that may have applied a split without reporting it.
func (s *Set) openUnheard() {
	stored, err := snapshot.StoredReplicas(s.store)
	if err != nil {
		s.logger.Error("cannot list the tablets that splits have created", "error", err)
		return
	}
	for _, r := range stored {
		s.mu.Lock()
		known := s.held[r.Tablet] != nil
		s.mu.Unlock()
		if !known { // no task is under way for the tablet either
			s.SplitApplied(r.Tablet)
		}
	}
}

// createFor creates the replica that a message is for and delivers the message, or records
// for a while that the replica may not be created.
func (s *Set) createFor(m *wire.RaftMessage) {
	err := s.create(m.TabletId, m.ToReplica, m.Tablet)
	// A split has created the replica between the message and this task: open the store's.
	if errors.Is(err, errUnsplit) {
		err = s.reopen(m.TabletId)
		if s.current(m.TabletId) != m.ToReplica {
			err = errors.Join(err, errElsewhere)
		}
	}
	if err == nil {
		s.owner.Deliver(m.TabletId, m)
		return
	}
	s.logger.Debug("a replica was not created", "tablet", m.TabletId, "replica", m.ToReplica,
		"reason", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Clearing all of them costs only one more check for each.
	if len(s.refused) >= maxRefused {
		clear(s.refused)
	}
	s.refused[name{m.TabletId, m.ToReplica}] = time.Now()
}

// create creates a replica that waits for a snapshot, after destroying a lower one, and opens it.
func (s *Set) create(id, replica uint64, d *pb.TabletDescriptor) error {
	if d.GetTabletId() != id || group.Replica(d, replica).GetNodeId() != s.node {
		return errUnlisted
	}
	switch have := s.current(id); {
	case have > replica:
		return errHigher
	case have == replica:
		return nil
	case have != 0: // a lower one, which the sender's descriptor shows to be removed
		if err := s.destroy(id, replica-1); err != nil {
			return err
		}
	}
	if err := s.checkTombstone(id, replica); err != nil {
		return err
	}
	// From here on no other replica may get these rows. Once it is created, the store has the
	// range.
	if err := s.ranges.reserve(id, d, true); err != nil {
		if errors.Is(err, errOverlap) {
			s.dropSuperseded(d)
		}
		return err
	}
	defer s.ranges.release(id)
	if err := s.installer.Create(id, replica); err != nil {
		return err
	}
	return s.open(id, replica)
}

// openClosed retries opening replicas that stayed closed when a snapshot could not be
// installed, or two replicas not merged: the disk may have space by now. inspect calls it.
func (s *Set) openClosed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.held {
		if h.closed != nil && !h.busy {
			s.enqueueLocked(id, func() { s.openAgain(id) })
		}
	}
}

// openAgain is the task of openClosed for one tablet.
func (s *Set) openAgain(id uint64) {
	// Another task of the tablet may have opened it since.
	s.mu.Lock()
	closed := s.held[id].closed
	s.mu.Unlock()
	if closed == nil { // the replica was destroyed, or a split has opened it
		return
	}
	if err := s.reopenOrClose(id); err != nil {
		s.logger.Error("a replica stays closed; it is tried again", "tablet", id, "error", err)
	}
}
