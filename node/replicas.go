package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// replicaOwner is what replicas needs of its node. Methods may wait, but for deliver;
// those of one tablet are called one at a time, again but for deliver.
type replicaOwner interface {
	// openReplica starts the actor of a replica that the store has.
	openReplica(tablet uint64) error
	// stopReplica ends the actor, if it runs; its callers are answered.
	stopReplica(tablet uint64) error
	// destroyed is told that nothing is left of the tablet's replica.
	destroyed(tablet uint64)
	// deliver hands a message to the replica's actor.
	deliver(tablet uint64, m *wire.RaftMessage)
	// reread reads meta's records of all tablets anew; described is a tablet's, nil: there is none.
	reread(ctx context.Context) (described func(tablet uint64) *pb.TabletDescriptor, err error)
}

// replicas makes, fills, replaces and removes this node's replicas (design section 5).
// Its methods may be used concurrently and do not wait, unless they say so: the work is
// done by a few workers, for each tablet in order.
//
// Invariants:
//  1. A replica's files change by others than its actor only while the actor is stopped and all its writes are done, and the
//     tablet is busy here.
//  2. No two replicas of this node hold rows in common: what a replica holds, what a marker covers and what a snapshot under
//     way will bring is compared before a replica is made or a snapshot begun. A tablet that waits to be split here keeps its
//     other side away until then.
//  3. A replica id that was removed never comes back, and a lower one never replaces a higher one.
//  4. A replica is destroyed only where a committed change of its group is known to have removed it: it has applied that
//     itself, a higher id is here by the sender's descriptor, or meta's record at a higher epoch does not list it.
type replicas struct {
	owner  replicaOwner
	store  *store.Store
	logs   *tablet.Writers
	node   uint64
	logger *slog.Logger

	placing  sync.Mutex // held while ranges are compared and one is reserved
	reserved map[uint64]*pb.TabletDescriptor

	life    context.Context
	end     context.CancelFunc
	workers sync.WaitGroup

	installed  atomic.Uint64 // snapshots brought into force
	turnedDown atomic.Uint64 // pieces of snapshots that were refused; the sender ends with the first

	mu       sync.Mutex
	work     *sync.Cond
	ready    []func()            // what a worker may begin with
	held     map[uint64]*replica // by tablet
	refused  map[replicaName]time.Time
	arrivals map[uint64]*arrival
	arrived  map[uint64]string // the last snapshot installed, by tablet
	started  bool              // Start knows what the store has; until then nothing is taken from other nodes
	closed   bool
}

// replica is what is known of a tablet's replica here. It stays while there is work for the tablet.
type replica struct {
	id      uint64 // 0: there is none
	busy    bool
	waiting []func() // work for the tablet that must be done, in order
	heard   time.Time
	asked   time.Time // when meta was asked about it
	closed  error     // why its actor does not run: an installation was not brought to its end
}

type replicaName struct{ tablet, id uint64 }

const (
	replicaWorkers  = 2
	maxReplicaTasks = 256                    // that may be refused when so many wait
	refusedFor      = 200 * time.Millisecond // a message for a replica that was not made is not looked at again
	maxRefused      = 4096
)

func newReplicas(owner replicaOwner, st *store.Store, logs *tablet.Writers, node uint64, logger *slog.Logger) *replicas {
	r := &replicas{
		owner: owner, store: st, logs: logs, node: node, logger: logger,
		reserved: map[uint64]*pb.TabletDescriptor{}, held: map[uint64]*replica{}, refused: map[replicaName]time.Time{},
		arrivals: map[uint64]*arrival{}, arrived: map[uint64]string{},
	}
	r.work = sync.NewCond(&r.mu)
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// Start brings to its end what a crash has cut short, then opens all replicas of the
// store; before hears which they are. It waits for the disk, and starts the workers,
// which Close joins. Other nodes may send all the while: a message for a replica that is
// yet to be opened must not have it opened as well, so each is busy before anything is
// taken from them.
func (r *replicas) Start(before func(tablets []uint64)) error {
	if err := tablet.Recover(r.store, r.logs); err != nil {
		return fmt.Errorf("node: finish the installation of replicas: %w", err)
	}
	stored, err := tablet.StoredReplicas(r.store)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	ids := make([]uint64, 0, len(stored))
	for _, s := range stored {
		ids = append(ids, s.Tablet)
	}
	before(ids)
	opened := make(chan error, len(stored))
	r.mu.Lock()
	for _, s := range stored {
		r.doLocked(s.Tablet, func() { opened <- r.openStored(s) })
	}
	r.started = true
	r.mu.Unlock()
	for range replicaWorkers {
		r.workers.Go(r.worker)
	}
	r.workers.Go(r.lookForRemoved)
	var errs []error
	for range stored {
		errs = append(errs, <-opened)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

// open starts a replica's actor. It may be heard of before this returns.
func (r *replicas) open(tablet, id uint64) error {
	r.mu.Lock()
	h := r.holder(tablet)
	h.id, h.heard, h.closed = id, time.Now(), nil
	r.mu.Unlock()
	return r.owner.openReplica(tablet)
}

// holder is what is known of a tablet; mu is held.
func (r *replicas) holder(tablet uint64) *replica {
	h := r.held[tablet]
	if h == nil {
		h = &replica{}
		r.held[tablet] = h
	}
	return h
}

// Held are the tablets that have a replica here, open or not.
func (r *replicas) Held() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]uint64, 0, len(r.held))
	for id, h := range r.held {
		if h.id != 0 {
			out = append(out, id)
		}
	}
	return out
}

// Close ends the workers after what they have begun; what waits is found again at the
// next start. It waits.
func (r *replicas) Close() {
	r.end()
	r.mu.Lock()
	r.closed = true
	r.work.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
}

func (r *replicas) worker() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.ready) == 0 && !r.closed {
			r.work.Wait()
		}
		if r.closed {
			return
		}
		task := r.ready[0]
		r.ready = r.ready[1:]
		r.mu.Unlock()
		task()
		r.mu.Lock()
	}
}

// do has work for a tablet done, in order, while nothing is delivered to it.
func (r *replicas) do(tablet uint64, task func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doLocked(tablet, task)
}

func (r *replicas) doLocked(tablet uint64, task func()) {
	h := r.holder(tablet)
	if h.busy {
		h.waiting = append(h.waiting, task)
		return
	}
	h.busy = true
	r.push(func() { r.run(tablet, task) })
}

func (r *replicas) push(task func()) {
	r.ready = append(r.ready, task)
	r.work.Signal()
}

func (r *replicas) run(tablet uint64, task func()) {
	task()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[tablet]
	if len(h.waiting) > 0 {
		next := h.waiting[0]
		h.waiting = h.waiting[1:]
		r.push(func() { r.run(tablet, next) })
		return
	}
	if h.busy = false; h.id == 0 {
		delete(r.held, tablet)
	}
}

// Deliver hands a Raft message to the replica that it is for, which is made if the
// message is the first for it. What can't be delivered now is dropped: Raft sends again.
func (r *replicas) Deliver(m *wire.RaftMessage) {
	if m.ToNode != r.node || m.TabletId == 0 || m.ToReplica == 0 {
		return
	}
	now := time.Now()
	r.mu.Lock()
	h := r.held[m.TabletId]
	if h != nil && !h.busy && h.id == m.ToReplica {
		h.heard = now
		r.mu.Unlock()
		r.owner.deliver(m.TabletId, m)
		return
	}
	defer r.mu.Unlock()
	name := replicaName{m.TabletId, m.ToReplica}
	switch {
	case h != nil && (h.busy || h.id > m.ToReplica), !r.started, r.closed, len(r.ready) >= maxReplicaTasks:
		return
	case now.Sub(r.refused[name]) < refusedFor:
		return
	}
	r.doLocked(m.TabletId, func() { r.admit(m) })
}

// admit makes the replica that a message is for, or remembers for a while that it may not be made.
func (r *replicas) admit(m *wire.RaftMessage) {
	err := r.create(m.TabletId, m.ToReplica, m.Tablet)
	if errors.Is(err, errUnsplit) {
		err = errors.Join(r.reopen(m.TabletId), r.isHere(m.TabletId, m.ToReplica))
	}
	if err == nil {
		r.owner.deliver(m.TabletId, m)
		return
	}
	r.logger.Debug("a replica was not made", "tablet", m.TabletId, "replica", m.ToReplica, "reason", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refused) >= maxRefused {
		clear(r.refused)
	}
	r.refused[replicaName{m.TabletId, m.ToReplica}] = time.Now()
}

// SplitApplied opens the new tablet of a split that was applied here. If one waited for
// its first snapshot, it goes on with what the split has written; if the tablet's replica
// was removed before it came to be, its rows are cleared.
func (r *replicas) SplitApplied(right uint64) {
	r.do(right, func() {
		if err := r.reopen(right); err != nil {
			r.logger.Error("a tablet could not be started after a split", "tablet", right, "error", err)
		}
	})
}

// Reopen stops the replica's actor and starts it anew from the store. done is told what came of it.
func (r *replicas) Reopen(tablet uint64, done func(error)) {
	r.do(tablet, func() { done(r.reopen(tablet)) })
}

func (r *replicas) reopen(id uint64) error {
	if err := r.stop(id); err != nil {
		return err
	}
	if err := tablet.FinishInstalling(r.store, r.logs, id); err != nil {
		return err
	}
	s, ok, err := tablet.StoredReplica(r.store, id)
	if err != nil || !ok {
		return err
	}
	return r.openStored(s)
}

// stop ends the actor, and returns when all that it wrote is in the store.
func (r *replicas) stop(id uint64) error {
	if err := r.owner.stopReplica(id); err != nil {
		return err
	}
	return r.logs.Barrier()
}

// Removed is called when a replica has applied its own removal, or it is known otherwise.
func (r *replicas) Removed(id, replica uint64) {
	r.do(id, func() {
		if err := r.destroy(id, replica); err != nil {
			r.logger.Error("a removed replica could not be destroyed; the next start goes on with it", "tablet", id, "error", err)
		}
	})
}

// RemovedHere is Removed for the replica that is here when it is called: its own actor calls it.
func (r *replicas) RemovedHere(id uint64) {
	r.mu.Lock()
	replica := uint64(0)
	if h := r.held[id]; h != nil {
		replica = h.id
	}
	r.mu.Unlock()
	if replica != 0 {
		r.Removed(id, replica)
	}
}

// destroy removes the tablet's replica here if it is the one named, or a lower one.
func (r *replicas) destroy(id, replica uint64) error {
	r.mu.Lock()
	have := r.held[id].id
	r.mu.Unlock()
	if have > replica {
		return nil
	}
	if have != 0 {
		if err := r.stop(id); err != nil {
			return err
		}
	}
	if err := tablet.Destroy(r.store, r.logs, id, replica+1); err != nil {
		return err
	}
	r.owner.destroyed(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[id].id, r.held[id].closed = 0, nil
	delete(r.arrived, id)
	return nil
}
