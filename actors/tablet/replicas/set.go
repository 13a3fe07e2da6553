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

// The Set, its tasks, and the node's calls that start them. Callers hold the mutex briefly;
// tasks run on the queue's workers without it, one at a time for each tablet. Under way for
// a tablet are the task that makes it busy and those that wait behind it.

// Owner is a Set's interface to its node. Its methods may block, except Deliver. Those of
// one tablet are called one at a time, again except for Deliver.
type Owner interface {
	// OpenReplica starts the actor of a replica in the store. A stale one lacks entries that it has
	// acknowledged, and must stay inactive in its group.
	OpenReplica(tablet uint64, stale bool) error
	// StopReplica ends the actor, if it runs; its callers are answered.
	StopReplica(tablet uint64) error
	// Destroyed reports that nothing is left of the tablet's replica.
	Destroyed(tablet uint64)
	// Deliver passes a message to the replica's actor.
	Deliver(tablet uint64, m *wire.RaftMessage)
	// Reread reads meta's records of all tablets again. described returns the tablet's record;
	// if the tablet no longer exists, that of the tablet that contains its start; or nil.
	Reread(ctx context.Context) (
		described func(*pb.TabletDescriptor) *pb.TabletDescriptor, err error)
}

// Set is the replicas of this node. It owns the record of the existing replicas and of the tasks in
// progress for each. Its methods are safe for concurrent use, also from actors, and do not block
// unless they say so: the workers of its queue do slow work, one task at a time for each tablet. A
// tablet with a task is busy: messages that arrive for it are dropped.
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

	life context.Context // canceled by Close
	end  context.CancelFunc

	mu      sync.Mutex
	held    map[uint64]*replica // by tablet
	refused map[name]time.Time  // when creating a replica for a message was refused
	running bool                // from when Start has read the store until Close
	initial map[uint64]uint64   // the replicas that Start has found, by tablet
	found   int                 // number of stale replicas found since New
}

// replica is the record of a tablet's replica here, guarded by the Set's mutex. It is kept
// while there is a replica or a task of the tablet.
type replica struct {
	id      uint64 // 0: there is none
	busy    bool
	waiting []func() // tasks of the tablet to be queued, in order
	heard   time.Time
	asked   time.Time // last query to meta about it
	closed  error     // why its actor does not run: an incomplete installation or merge
	stale   bool      // see stale.go
}

type name struct{ tablet, replica uint64 }

const (
	workers    = 2
	maxWaiting = 256 // tasks; from this many on no message creates a replica
	// refusedFor is the time during which creating a refused replica is not retried, whatever
	// messages arrive for it.
	refusedFor = 200 * time.Millisecond
	maxRefused = 4096
)

// Reasons not to create a replica, or not to accept a snapshot, for now.
var (
	errUnlisted     = errors.New("replicas: the sender's descriptor does not list the replica")
	errTombstone    = errors.New("replicas: the replica was removed from here")
	errHigher       = errors.New("replicas: a replica with a higher id is here")
	errElsewhere    = errors.New("replicas: no such replica is here")
	errReserved     = errors.New("replicas: the tablet's replica is being created or filled here; try again")
	errPieceBusy    = errors.New("replicas: a piece of the snapshot is still being checked, written or installed; try again")
	errManyArrivals = fmt.Errorf("replicas: %d snapshots are arriving, the most that a node accepts; try again",
		maxArrivals)
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

// Start completes what a crash has interrupted, calls the function before with the tablets of all
// replicas in the store, and then opens these. It blocks on the disk, and starts the workers, which
// Close joins. Other nodes may send concurrently: all replicas are marked busy before anything is
// accepted, so that no message opens one a second time.
func (s *Set) Start(before func(tablets []uint64)) error {
	if err := s.installer.Recover(); err != nil {
		return fmt.Errorf("replicas: finish the installation of replicas: %w", err)
	}
	stored, err := snapshot.StoredReplicas(s.store)
	if err != nil {
		return fmt.Errorf("replicas: list the stored replicas: %w", err)
	}
	ids := make([]uint64, 0, len(stored))
	for _, r := range stored {
		ids = append(ids, r.Tablet)
	}
	before(ids)
	opened := make(chan error, len(stored))
	// All under one lock: tasks for messages come after these.
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
		return fmt.Errorf("replicas: open the stored replicas: %w", err)
	}
	return nil
}

// Close stops the workers after the tasks that they have begun, and joins them. The next
// Start finds the remaining work again.
func (s *Set) Close() {
	s.end()
	s.mu.Lock()
	s.running = false
	s.mu.Unlock()
	s.queue.close()
}

// inspectInterval is the interval at which inspect searches for replicas that need work
// without a message.
const inspectInterval = 10 * time.Second

// inspect searches, until Close, for replicas that may have missed their removal, for
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
			s.askAbout(s.silent(time.Now()))
			s.arrivals.dropIdle(time.Now())
			s.openClosed()
		}
	}
}

// enqueue queues a task of the tablet after those that it already has. After Close it never
// runs; the next Start finds its work in the store or receives it again.
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
// tablets. The tablet stays busy in between. A record without a replica is removed with the
// last task.
func (s *Set) run(tablet uint64, task func()) {
	task()
	s.next(tablet)
}

// next queues the tablet's next task after one has ended.
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

// holdLocked returns the record of a tablet, and adds one if it has none.
func (s *Set) holdLocked(tablet uint64) *replica {
	h := s.held[tablet]
	if h == nil {
		h = &replica{}
		s.held[tablet] = h
	}
	return h
}

// Deliver passes a Raft message to its replica, and creates the replica if the message is
// the first for it. It drops what cannot be delivered now: Raft sends again.
func (s *Set) Deliver(m *wire.RaftMessage) {
	if m.ToNode != s.node || m.TabletId == 0 || m.ToReplica == 0 {
		return
	}
	now := time.Now()
	// The mutex is not held during the delivery: the owner looks up the actor.
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
	// A replica here with a lower id than the message's does not refuse it: it was removed, since
	// the sender knows of a higher id, and create destroys it first.
	case h != nil && (h.busy || h.id > m.ToReplica), !s.running, s.queue.waiting() >= maxWaiting:
		return
	case now.Sub(s.refused[name{m.TabletId, m.ToReplica}]) < refusedFor:
		return
	}
	s.enqueueLocked(m.TabletId, func() { s.createFor(m) })
}

// Chunk accepts a piece of a snapshot. reply is called once, on any goroutine, unless Close comes
// first: when the piece is staged or refused, or, for the last piece, when the snapshot is
// installed. A piece that was sent twice is answered twice, once for each call.
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

// SplitApplied opens the replica of the new tablet of a split that was applied here. If the replica
// exists already and waits for its first snapshot, it continues with the rows written by the split;
// if it was removed before the split could create it, the rows are cleared.
func (s *Set) SplitApplied(right uint64) {
	s.enqueue(right, func() {
		if err := s.reopen(right); err != nil {
			s.logger.Error("a tablet could not be started after a split", "tablet", right, "error",
				err)
		}
	})
}

// Reopen stops the replica's actor and opens it again from the store, and then opens what
// the actor may have split off without reporting it. done is called with the outcome, on a
// worker.
func (s *Set) Reopen(tablet uint64, done func(error)) {
	s.enqueue(tablet, func() {
		err := s.reopen(tablet)
		if err == nil {
			s.openUnheard()
		}
		done(err)
	})
}

// current returns the id of the tablet's replica here, or 0 if there is none. It is stable
// during a task of the tablet, since only such tasks change it.
func (s *Set) current(tablet uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[tablet]; h != nil {
		return h.id
	}
	return 0
}

// setClosed records why the tablet's replica does not run. It is called in a task of the
// tablet, so the record exists.
func (s *Set) setClosed(tablet uint64, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[tablet].closed = why
}

// Stats are figures of a Set.
type Stats struct {
	Installed uint64 // snapshots installed
	Refused   uint64 // pieces refused; a refusal ends the snapshot
	Closed    int    // replicas that stay closed after a failed installation or merge
	Why       error  // why the one with the lowest tablet id is closed; nil if none
	Stale     int    // replicas here that take no part in their groups; see Stale
	Found     int    // number of stale replicas found since New, including removed ones
}

// ErrClosed is wrapped by Stats.Why. Opening such a replica is retried every inspectInterval.
var ErrClosed = errors.New("replicas: replica is closed")

// Stats returns the current figures.
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
		out.Why = fmt.Errorf("%w: tablet %d (one of %d closed), since an installation or merge failed; "+
			"opening it is retried: %w",
			ErrClosed, first, out.Closed, out.Why)
	}
	return out
}
