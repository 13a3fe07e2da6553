package replicas

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/internal/wire"
)

// Limits of concurrent arrivals, and timeouts for a silent sender.
const (
	maxArrivals  = 4               // snapshots arriving at a time, of all tablets
	arrivalIdle  = time.Minute     // pause of the sender after which an arrival is abandoned
	arrivalStale = 5 * time.Second // pause after which another snapshot may replace an arrival
	maxReplies   = 4               // replies to one piece that was sent several times
)

// arrivals are the snapshots that other nodes are sending to this one. It records the progress of
// each; the pieces are staged in the store and have no effect until the last one has arrived and
// the Set replaces the replica's state. The receiver of a piece calls take; the rest runs on
// workers. Its mutex may be held while the Set's is acquired, not the other way round.
type arrivals struct {
	set *Set

	installed atomic.Uint64 // see Stats
	refused   atomic.Uint64

	mu    sync.Mutex
	under map[uint64]*arrival // under way, by tablet
	// The last snapshot installed, by tablet: the answer to its last piece may be lost, and then
	// the sender repeats the piece.
	last map[uint64]string
}

// arrival is a snapshot that is arriving. mu of arrivals guards its fields; snapshot belongs to the
// goroutine that has set busy.
type arrival struct {
	id       string
	snapshot *snapshot.Arrival // nil: the first piece is being checked
	busy     bool              // a piece is being staged, or the snapshot installed
	piece    uint64            // the piece being staged
	replies  []func(*wire.SnapshotAnswer)
	last     time.Time
	ending   bool // what is staged is being dropped
}

var (
	errNotRunning = errors.New("replicas: the receiver is starting or closing; try again")
	errNotBegun   = errors.New("replicas: the receiver has not begun this snapshot, or has abandoned it")
	errArriving   = errors.New(
		"replicas: another snapshot for this replica is arriving, possibly from the previous leader")
)

func refusal(err error) *wire.SnapshotAnswer { return &wire.SnapshotAnswer{Refused: err.Error()} }

// take accepts a piece of a snapshot. It returns an answer that is known immediately, or nil;
// then it calls reply with the answer later.
func (x *arrivals) take(c *wire.SnapshotChunk,
	reply func(*wire.SnapshotAnswer)) *wire.SnapshotAnswer {
	x.mu.Lock()
	defer x.mu.Unlock()
	running, here := x.set.takes(c)
	now, a := time.Now(), x.under[c.TabletId]
	switch {
	// Start does not know yet what the store has, or Close has begun.
	case !running:
		return refusal(errNotRunning)
	// The answer to the last piece was lost, and the sender asks again.
	case a == nil && x.last[c.TabletId] == c.Id:
		return &wire.SnapshotAnswer{Installed: true}
	// The piece is the first of a snapshot, or belongs to a snapshot that was given up here.
	case a == nil || a.id != c.Id:
		return x.beginLocked(here, a, c, reply, now)
	case a.ending:
		return refusal(errNotBegun)
	// The piece was repeated while it is being staged: both get its answer.
	case a.busy && c.Sequence == a.piece:
		if len(a.replies) < maxReplies {
			a.replies = append(a.replies, reply)
			return nil
		}
		return refusal(errPieceBusy)
	// The piece is staged already, and its answer was lost.
	case !a.busy && c.Sequence+1 == a.snapshot.Next():
		return &wire.SnapshotAnswer{Next: c.Sequence + 1}
	case a.busy:
		return refusal(errPieceBusy)
	}
	a.busy, a.piece, a.last, a.replies = true, c.Sequence, now, append(a.replies, reply)
	x.set.queue.push(func() { x.stage(c, a) })
	return nil
}

// takes reports whether pieces of snapshots are accepted, and whether the replica that this one is
// for is here and not stale.
func (s *Set) takes(c *wire.SnapshotChunk) (running, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[c.TabletId]
	return s.running, h != nil && h.id == c.ToReplica && !h.stale
}

// beginLocked prepares for a snapshot's first piece, and has it checked. A snapshot of the same
// tablet that is arriving takes precedence, unless its sender is silent: then it is dropped, and
// the new one is accepted when its sender retries.
func (x *arrivals) beginLocked(
	here bool, other *arrival, c *wire.SnapshotChunk, reply func(*wire.SnapshotAnswer),
	now time.Time,
) *wire.SnapshotAnswer {
	switch {
	case c.Sequence != 0 || c.Header == nil:
		return refusal(errNotBegun)
	case !here:
		return refusal(errElsewhere)
	case other != nil:
		if !other.busy && !other.ending && now.Sub(other.last) > arrivalStale {
			x.endLocked(c.TabletId, other)
		}
		return refusal(errArriving)
	case len(x.under) >= maxArrivals:
		return refusal(errManyArrivals)
	}
	a := &arrival{id: c.Id, busy: true, last: now, replies: []func(*wire.SnapshotAnswer){reply}}
	x.under[c.TabletId] = a
	x.set.queue.push(func() { x.begin(c, a) })
	return nil
}

// begin checks the first piece, on a worker: whether the snapshot is needed, and whether its range
// is free.
func (x *arrivals) begin(c *wire.SnapshotChunk, a *arrival) {
	id := c.TabletId
	arrived, err := x.set.installer.Arrive(x.set.node, c)
	needed := false
	if err == nil {
		needed, err = arrived.Needed()
	}
	if err == nil && needed {
		err = x.set.ranges.reserve(id, arrived.Descriptor(), false)
		if errors.Is(err, errOverlap) {
			x.set.dropSuperseded(arrived.Descriptor())
		}
	}
	if err != nil || !needed { // nothing is staged, nothing reserved
		x.remove(id)
		// Nothing needs to be sent to a replica that has everything: that is a success.
		answer := &wire.SnapshotAnswer{Installed: true}
		if err != nil {
			answer = refusal(err)
		}
		x.answer(a, answer)
		return
	}
	// Staged entries of a snapshot that was ended by a crash or a silent sender.
	if err := x.set.installer.Unstage(id); err != nil {
		x.fail(id, a, err)
		return
	}
	x.mu.Lock()
	a.snapshot = arrived
	x.mu.Unlock()
	x.stage(c, a)
}

// stage writes a piece on a worker, and installs the snapshot after the last one. It answers once
// the piece is written, or the snapshot installed: the sender sends the next one only then, so that
// one piece of each snapshot is in memory.
func (x *arrivals) stage(c *wire.SnapshotChunk, a *arrival) {
	err := a.snapshot.Take(c, func(err error) {
		switch {
		case err != nil:
			x.fail(c.TabletId, a, err)
		case c.Last:
			x.set.enqueue(c.TabletId, func() { x.install(c.TabletId, a) })
		default:
			x.answer(a, &wire.SnapshotAnswer{Next: c.Sequence + 1})
		}
	})
	if err != nil {
		x.fail(c.TabletId, a, err)
	}
}

// answer answers the senders of the piece, and admits the next one. It calls the replies without
// the mutex: they may send.
func (x *arrivals) answer(a *arrival, answer *wire.SnapshotAnswer) {
	x.mu.Lock()
	replies := a.replies
	a.replies, a.busy, a.last = nil, false, time.Now()
	x.mu.Unlock()
	for _, reply := range replies {
		reply(answer)
	}
}

// fail abandons a snapshot, and sends the reason to the sender.
func (x *arrivals) fail(id uint64, a *arrival, cause error) {
	x.set.logger.Warn("a snapshot was abandoned", "tablet", id, "snapshot", a.id, "reason", cause)
	x.mu.Lock()
	x.endLocked(id, a)
	x.mu.Unlock()
	x.answer(a, refusal(cause))
}

// endLocked drops the staged entries in a task of the tablet, by which time an installation that
// uses them has ended. Until then no other snapshot for the tablet begins.
func (x *arrivals) endLocked(id uint64, a *arrival) {
	a.ending = true
	x.set.enqueue(id, func() { x.drop(id) })
}

// drop ends an arrival and removes its staged entries from the store.
func (x *arrivals) drop(id uint64) {
	if err := x.set.installer.Unstage(id); err != nil {
		x.set.logger.Warn("cannot delete an abandoned snapshot's pieces; the next start deletes them",
			"tablet", id, "error", err)
	}
	x.set.ranges.release(id)
	x.remove(id)
}

// remove ends the record of an arrival, so that another one may begin.
func (x *arrivals) remove(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.under, id)
}

// forget clears the record of the last installed snapshot: the replica is destroyed, and one
// created later needs a snapshot of its own.
func (x *arrivals) forget(id uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.last, id)
}

// dropIdle abandons snapshots that their senders have abandoned.
func (x *arrivals) dropIdle(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, a := range x.under {
		if !a.busy && !a.ending && now.Sub(a.last) > arrivalIdle {
			x.endLocked(id, a)
		}
	}
}

// install installs a complete snapshot, in one task that holds the tablet and every tablet merged
// into it.
func (x *arrivals) install(id uint64, a *arrival) {
	taken, err := x.set.taken(id, a.snapshot.Descriptor())
	if err != nil {
		x.fail(id, a, err)
		return
	}
	var others []uint64
	for _, r := range taken {
		others = append(others, r.Tablet)
	}
	x.set.together(id, others, func() { x.installNow(id, a, taken) })
}

func (x *arrivals) installNow(id uint64, a *arrival, taken []snapshot.Replica) {
	installed, err := x.set.replace(id, a.snapshot, taken)
	switch {
	case err != nil:
		x.fail(id, a, err)
		return
	case !installed: // the replica has caught up without it
		x.drop(id)
	default:
		x.set.ranges.release(id)
		x.installed.Add(1)
		x.mu.Lock()
		delete(x.under, id)
		x.last[id] = a.id
		x.mu.Unlock()
	}
	x.answer(a, &wire.SnapshotAnswer{Installed: true})
}

// replace stops the replica's actor, replaces its state by the snapshot's, and opens a new actor on
// it. It returns false if the replica no longer needs the snapshot.
func (s *Set) replace(id uint64, a *snapshot.Arrival, taken []snapshot.Replica) (bool, error) {
	have := s.current(id)
	if have != a.Replica() { // the replica was removed in the meantime
		return false, errElsewhere
	}
	if err := a.Fits(); err != nil {
		return false, err
	}
	needed, err := false, s.stop(id)
	// The actor may have applied a split that it could not report any more.
	s.openUnheard()
	for _, r := range taken {
		err = errors.Join(err, s.stop(r.Tablet))
	}
	if err == nil { // otherwise the actors may still be running
		needed, err = s.exchange(id, a, taken)
	}
	for _, r := range taken {
		_ = s.reopenOrClose(r.Tablet)
	}
	if err == nil {
		err = s.open(id, have)
	}
	if err != nil { // whatever is in the store now: openClosed, or the next start, continues from it
		s.setClosed(id, err)
	}
	return needed && err == nil, err
}

// exchange installs the snapshot if the replica still needs it.
func (s *Set) exchange(id uint64, a *snapshot.Arrival, taken []snapshot.Replica) (bool, error) {
	before, ok, err := snapshot.StoredReplica(s.store, id)
	if err != nil || !ok {
		return false, errors.Join(errElsewhere, err)
	}
	needed, err := a.Needed()
	if err != nil || !needed {
		return false, err
	}
	return true, a.Install(before.Descriptor, taken)
}
