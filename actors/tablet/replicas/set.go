package replicas

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file has the Set, its tasks, and the calls of the node that begin them. Callers
// take the mutex for a moment; tasks run on the queue's workers without it, one at a time
// for each tablet. In flight for a tablet are the task that makes it busy and those that
// wait behind it.

// Owner is what a Set needs of its node. Its methods may wait, except Deliver. Those of
// one tablet are called one at a time, again except for Deliver.
type Owner interface {
	// OpenReplica starts the actor of a replica that the store has. A stale one lacks what
	// it has acknowledged, and must take no part in its group.
	OpenReplica(tablet uint64, stale bool) error
	// StopReplica ends the actor, if it runs; its callers are answered.
	StopReplica(tablet uint64) error
	// Destroyed reports that nothing is left of the tablet's replica.
	Destroyed(tablet uint64)
	// Deliver hands a message to the replica's actor.
	Deliver(tablet uint64, m *wire.RaftMessage)
	// Reread reads meta's records of all tablets again. described returns that of the
	// tablet; of one that is no more, that of the tablet in which it began; or nil.
	Reread(ctx context.Context) (
		described func(*pb.TabletDescriptor) *pb.TabletDescriptor, err error)
}

// Set is the replicas of this node. It owns which of them there are and what is under way
// for each. Its methods may be called on any goroutine, an actor's among them, and do not
// wait unless they say so: the workers of its queue do what takes time, one task after
// the other for each tablet. A tablet that has a task is busy: nothing is delivered to
// it.
type Set struct {
	owner     Owner
	store     *store.Store
	logs      *writers.Pair
	installer *snapshot.Installer // changes replicas' states while their actors are stopped
	node      uint64
	logger    *slog.Logger
	queue     *queue
	ranges    *ranges
	arrivals  *arrivals

	life context.Context // ends with Close
	end  context.CancelFunc

	mu      sync.Mutex
	held    map[uint64]*replica // by tablet
	refused map[name]time.Time  // when a replica was not made that a message asked for
	running bool                // from when Start knows what the store has until Close
	initial map[uint64]uint64   // the replicas that Start has found, by tablet
	found   int                 // replicas that have turned out to be stale since New
}

// replica is what is known of a tablet's replica here, guarded by the Set's mutex. It is
// kept while there is a replica or a task of the tablet.
type replica struct {
	id      uint64 // 0: there is none
	busy    bool
	waiting []func() // tasks of the tablet that are yet to be queued, in order
	heard   time.Time
	asked   time.Time // when meta was asked about it
	closed  error     // why its actor does not run: an installation was not brought to its end
	stale   bool      // see stale.go
}

type name struct{ tablet, replica uint64 }

const (
	workers    = 2
	maxWaiting = 256 // tasks; while so many wait no message makes a replica
	// refusedFor is for how long a replica that was not made is not tried again, whatever
	// messages come for it.
	refusedFor = 200 * time.Millisecond
	maxRefused = 4096
)

// Why a replica is not made, or a snapshot not taken, here and now.
var (
	errUnlisted  = errors.New("replicas: the sender's descriptor does not list the replica")
	errTombstone = errors.New("replicas: the replica was removed from here")
	errHigher    = errors.New("replicas: a replica with a higher id is here")
	errElsewhere = errors.New("replicas: no such replica is here")
	errBusy      = errors.New("replicas: too much else is going on; try again")
)

// New returns the replicas of a node, none of which runs before Start.
func New(owner Owner, st *store.Store, logs *writers.Pair, node uint64,
	logger *slog.Logger) *Set {
	s := &Set{
		owner: owner, store: st, logs: logs, installer: snapshot.NewInstaller(st, logs),
		node: node, logger: logger, queue: newQueue(),
		ranges: &ranges{store: st, reserved: map[uint64]*pb.TabletDescriptor{}},
		held:   map[uint64]*replica{}, refused: map[name]time.Time{}, initial: map[uint64]uint64{},
	}
	s.arrivals = &arrivals{set: s, under: map[uint64]*arrival{}, last: map[uint64]string{}}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Start completes what a crash has cut short, then opens all replicas of the store;
// before is told which they are. It waits for the disk, and starts the workers, which
// Close joins. Other nodes may send meanwhile: so that no message has a replica opened a
// second time, all of them are busy before anything is taken from others.
func (s *Set) Start(before func(tablets []uint64)) error {
	if err := s.installer.Recover(); err != nil {
		return fmt.Errorf("replicas: finish the installation of replicas: %w", err)
	}
	stored, err := snapshot.StoredReplicas(s.store)
	if err != nil {
		return fmt.Errorf("replicas: %w", err)
	}
	ids := make([]uint64, 0, len(stored))
	for _, r := range stored {
		ids = append(ids, r.Tablet)
	}
	before(ids)
	opened := make(chan error, len(stored))
	// All under one lock: what a message asks for comes behind these.
	s.mu.Lock()
	for _, r := range stored {
		s.initial[r.Tablet] = r.ReplicaID
		s.enqueueLocked(r.Tablet, func() { opened <- s.openStored(r) })
	}
	s.running = true
	s.mu.Unlock()
	s.queue.start(workers)
	s.queue.workers.Go(s.inspect)
	var errs []error
	for range stored {
		errs = append(errs, <-opened)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("replicas: %w", err)
	}
	return nil
}

// Close ends the workers after the tasks that they have begun, and waits for them. The
// next Start finds again what was left.
func (s *Set) Close() {
	s.end()
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	s.queue.close()
}

// inspectInterval is how often inspect looks for replicas that need something nobody asks
// for.
const inspectInterval = 10 * time.Second

// inspect looks, until Close, for replicas that may have been removed unheard, for
// snapshots that have stopped arriving, and for replicas that stay closed. It has a
// goroutine of its own.
func (s *Set) inspect() {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
			s.askAbout(s.unheard(time.Now()))
			s.arrivals.dropIdle(time.Now())
			s.openClosed()
		}
	}
}

// enqueue has a task of the tablet run after those that it has already. After Close it never
// runs; what it was to do, the next Start finds in the store or is asked for again.
func (s *Set) enqueue(tablet uint64, task func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueueLocked(tablet, task)
}

func (s *Set) enqueueLocked(tablet uint64, task func()) {
	h := s.holdLocked(tablet)
	if h.busy {
		h.waiting = append(h.waiting, task)
		return
	}
	h.busy = true
	s.queue.push(func() { s.run(tablet, task) })
}

// run runs a task on a worker, then queues the tablet's next one, behind those of other
// tablets. The tablet stays busy in between. A record without a replica goes with the last
// task.
func (s *Set) run(tablet uint64, task func()) {
	task()
	s.next(tablet)
}

// next queues what waits behind the tablet's task, which has ended.
func (s *Set) next(tablet uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[tablet]
	if len(h.waiting) > 0 {
		next := h.waiting[0]
		h.waiting = h.waiting[1:]
		s.queue.push(func() { s.run(tablet, next) })
		return
	}
	if h.busy = false; h.id == 0 {
		delete(s.held, tablet)
	}
}

// holdLocked returns the record of a tablet, and adds one if there is none.
func (s *Set) holdLocked(tablet uint64) *replica {
	h := s.held[tablet]
	if h == nil {
		h = &replica{}
		s.held[tablet] = h
	}
	return h
}

// Deliver gives a Raft message to the replica that it is for, and makes the replica if
// the message is the first for it. What cannot be delivered now is dropped: Raft sends
// again.
func (s *Set) Deliver(m *wire.RaftMessage) {
	if m.ToNode != s.node || m.TabletId == 0 || m.ToReplica == 0 {
		return
	}
	now := time.Now()
	// The mutex is not held while the message is delivered: the owner looks the actor up.
	s.mu.Lock()
	h := s.held[m.TabletId]
	// Nearly every message is for a replica that runs.
	if h != nil && !h.busy && h.id == m.ToReplica {
		h.heard = now
		s.mu.Unlock()
		s.owner.Deliver(m.TabletId, m)
		return
	}
	defer s.mu.Unlock()
	switch {
	// A lower replica that is here was removed, if the sender knows of a higher one: create
	// destroys it first.
	case h != nil && (h.busy || h.id > m.ToReplica), !s.running, s.queue.waiting() >= maxWaiting:
		return
	case now.Sub(s.refused[name{m.TabletId, m.ToReplica}]) < refusedFor:
		return
	}
	s.enqueueLocked(m.TabletId, func() { s.createFor(m) })
}

// Chunk takes a piece of a snapshot. reply is called once, on any goroutine: when the
// piece is staged, and after the last one when the snapshot is in force. A piece that
// comes twice is answered twice.
func (s *Set) Chunk(c *wire.SnapshotChunk, reply func(*wire.SnapshotAnswer)) {
	counted := func(a *wire.SnapshotAnswer) {
		if a.GetRefused() != "" {
			s.arrivals.refused.Add(1)
		}
		reply(a)
	}
	if answer := s.arrivals.take(c, counted); answer != nil {
		counted(answer)
	}
}

// SplitApplied opens the new tablet of a split that was applied here. If one waited for
// its first snapshot, it goes on with what the split has written; if the tablet's replica
// was removed before it came to be, its rows are cleared.
func (s *Set) SplitApplied(right uint64) {
	s.enqueue(right, func() {
		if err := s.reopen(right); err != nil {
			s.logger.Error("a tablet could not be started after a split", "tablet", right, "error",
				err)
		}
	})
}

// Reopen stops the replica's actor and opens it again from the store, and then opens what
// the actor may have split off without reporting it. done is called with the outcome, on
// a worker.
func (s *Set) Reopen(tablet uint64, done func(error)) {
	s.enqueue(tablet, func() {
		err := s.reopen(tablet)
		if err == nil {
			s.openUnheard()
		}
		done(err)
	})
}

// current returns the id of the tablet's replica here, or 0 if there is none. A task may go
// by it to its end: only tasks of the tablet change it.
func (s *Set) current(tablet uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[tablet]; h != nil {
		return h.id
	}
	return 0
}

// setClosed records why the tablet's replica does not run. It is called in a task of the
// tablet, so the record is there.
func (s *Set) setClosed(tablet uint64, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[tablet].closed = why
}

// Stats are figures of a Set.
type Stats struct {
	Installed uint64 // snapshots brought into force
	Refused   uint64 // pieces of snapshots that were refused; the sender ends with the first
	Closed    int    // replicas that stay closed because a snapshot could not be installed
	Why       error  // why the one of them with the lowest tablet does; nil if none
	Stale     int    // replicas here that take no part in their groups; see Stale
	Found     int    // of those and of those removed since: how many have been found since New
}

// ErrClosed is wrapped by Stats.Why. Such a replica is tried again every inspectInterval.
var ErrClosed = errors.New("replicas: replica is closed")

// Stats returns the figures as of now.
func (s *Set) Stats() Stats {
	out := Stats{Installed: s.arrivals.installed.Load(), Refused: s.arrivals.refused.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := uint64(0)
	out.Found = s.found
	for id, h := range s.held {
		if h.stale {
			out.Stale++
		}
		if h.closed == nil {
			continue
		}
		if out.Closed++; out.Closed == 1 || id < first {
			first, out.Why = id, h.closed
		}
	}
	if out.Closed > 0 {
		out.Why = fmt.Errorf("%w: tablet %d (one of %d), after a snapshot that could not be installed: %w",
			ErrClosed, first, out.Closed, out.Why)
	}
	return out
}
