package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// What arrives at once, and how long a sender may be silent.
const (
	maxArrivals  = 4
	arrivalIdle  = time.Minute
	arrivalStale = 5 * time.Second // after which another snapshot may take its place
	maxReplies   = 4
)

// arrival is a snapshot that is arriving. Its fields are guarded by mu of replicas;
// snapshot is used by who has set busy.
type arrival struct {
	id       string
	snapshot *tablet.Arrival // nil: the first piece is being looked at
	busy     bool            // a piece is being taken, or the whole installed
	piece    uint64          // the piece that is being taken
	replies  []func(*wire.SnapshotAnswer)
	last     time.Time
	ending   bool // what is staged is being dropped
}

var errNotBegun = errors.New("node: this snapshot has not begun here, or was given up")

func refusal(err error) *wire.SnapshotAnswer { return &wire.SnapshotAnswer{Refused: err.Error()} }

// Chunk takes a piece of a snapshot. reply is called once, on any goroutine: when the
// piece is staged, and after the last one when the snapshot is in force. A piece that
// comes twice is answered twice.
func (r *replicas) Chunk(c *wire.SnapshotChunk, reply func(*wire.SnapshotAnswer)) {
	counted := func(a *wire.SnapshotAnswer) {
		if a.GetRefused() != "" {
			r.turnedDown.Add(1)
		}
		reply(a)
	}
	if answer := r.chunk(c, counted); answer != nil {
		counted(answer)
	}
}

// chunk returns an answer that is there at once, or nil.
func (r *replicas) chunk(c *wire.SnapshotChunk, reply func(*wire.SnapshotAnswer)) *wire.SnapshotAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, a := time.Now(), r.arrivals[c.TabletId]
	switch {
	case !r.started, r.closed:
		return refusal(errBusy)
	case a == nil && r.arrived[c.TabletId] == c.Id:
		return &wire.SnapshotAnswer{Installed: true}
	case a == nil || a.id != c.Id:
		return r.beginLocked(a, c, reply, now)
	case a.ending:
		return refusal(errNotBegun)
	case a.busy && c.Sequence == a.piece:
		if len(a.replies) < maxReplies {
			a.replies = append(a.replies, reply)
			return nil
		}
		return refusal(errBusy)
	case !a.busy && c.Sequence+1 == a.snapshot.Next():
		return &wire.SnapshotAnswer{Next: c.Sequence + 1}
	case a.busy:
		return refusal(errBusy)
	}
	a.busy, a.piece, a.last, a.replies = true, c.Sequence, now, append(a.replies, reply)
	r.push(func() { r.take(c, a) })
	return nil
}

// beginLocked makes place for a snapshot's first piece, and has it looked at.
func (r *replicas) beginLocked(other *arrival, c *wire.SnapshotChunk, reply func(*wire.SnapshotAnswer), now time.Time) *wire.SnapshotAnswer {
	h := r.held[c.TabletId]
	switch {
	case c.Sequence != 0 || c.Header == nil:
		return refusal(errNotBegun)
	case h == nil || h.id != c.ToReplica:
		return refusal(errElsewhere)
	case other != nil:
		if !other.busy && !other.ending && now.Sub(other.last) > arrivalStale {
			r.endLocked(c.TabletId, other)
		}
		return refusal(errArriving)
	case len(r.arrivals) >= maxArrivals:
		return refusal(errBusy)
	}
	a := &arrival{id: c.Id, busy: true, last: now, replies: []func(*wire.SnapshotAnswer){reply}}
	r.arrivals[c.TabletId] = a
	r.push(func() { r.begin(c, a) })
	return nil
}

// begin looks at the first piece.
func (r *replicas) begin(c *wire.SnapshotChunk, a *arrival) {
	snapshot, err := tablet.NewArrival(r.store, r.logs, r.node, c)
	if err != nil {
		r.give(c.TabletId, a, refusal(err))
		return
	}
	needed, err := needs(r.store, snapshot)
	if err == nil && !needed {
		r.give(c.TabletId, a, &wire.SnapshotAnswer{Installed: true})
		return
	}
	if err == nil {
		err = r.reserve(c.TabletId, snapshot.Descriptor(), false)
	}
	if err != nil {
		r.give(c.TabletId, a, refusal(err))
		return
	}
	if err := tablet.Unstage(r.store, r.logs, c.TabletId); err != nil { // of one that a crash, or a silence, has ended
		r.fail(c.TabletId, a, err)
		return
	}
	r.mu.Lock()
	a.snapshot = snapshot
	r.mu.Unlock()
	r.take(c, a)
}

// needs reports whether the replica lacks what the snapshot holds. One that has its last
// entry does not: its leader only does not know yet.
func needs(st *store.Store, snapshot *tablet.Arrival) (bool, error) {
	id := snapshot.Descriptor().TabletId
	snap := st.Snap()
	applied, ok, err := snap.Applied(id)
	snap.Close()
	switch {
	case err != nil:
		return false, err
	case !ok:
		return false, errElsewhere
	case applied.Index >= snapshot.Index():
		return false, nil
	}
	log, err := st.OpenLog(id)
	if err != nil {
		return false, err
	}
	term, err := log.Term(snapshot.Index())
	return err != nil || term != snapshot.Term(), nil
}

// take stages a piece.
func (r *replicas) take(c *wire.SnapshotChunk, a *arrival) {
	err := a.snapshot.Take(c, func(err error) {
		switch {
		case err != nil:
			r.fail(c.TabletId, a, err)
		case a.snapshot.Whole():
			r.do(c.TabletId, func() { r.install(c.TabletId, a) })
		default:
			r.answer(a, &wire.SnapshotAnswer{Next: c.Sequence + 1})
		}
	})
	if err != nil {
		r.fail(c.TabletId, a, err)
	}
}

// answer tells who waits for the piece, and lets the next one come.
func (r *replicas) answer(a *arrival, answer *wire.SnapshotAnswer) {
	r.mu.Lock()
	replies := a.replies
	a.replies, a.busy, a.last = nil, false, time.Now()
	r.mu.Unlock()
	for _, reply := range replies {
		reply(answer)
	}
}

// give ends a snapshot that has staged nothing and reserved nothing.
func (r *replicas) give(id uint64, a *arrival, answer *wire.SnapshotAnswer) {
	r.mu.Lock()
	delete(r.arrivals, id)
	r.mu.Unlock()
	r.answer(a, answer)
}

// fail gives a snapshot up, and tells the sender why.
func (r *replicas) fail(id uint64, a *arrival, cause error) {
	r.logger.Warn("a snapshot is not taken", "tablet", id, "snapshot", a.id, "reason", cause)
	r.mu.Lock()
	r.endLocked(id, a)
	r.mu.Unlock()
	r.answer(a, refusal(cause))
}

// endLocked has what is staged dropped, in the tablet's turn; until then no other
// snapshot for it begins.
func (r *replicas) endLocked(id uint64, a *arrival) {
	a.ending = true
	r.doLocked(id, func() { r.drop(id) })
}

// drop ends an arrival: nothing of it is left in the store.
func (r *replicas) drop(id uint64) {
	if err := tablet.Unstage(r.store, r.logs, id); err != nil {
		r.logger.Warn("a given up snapshot could not be dropped; the next start does it", "tablet", id, "error", err)
	}
	r.unreserve(id)
	r.mu.Lock()
	delete(r.arrivals, id)
	r.mu.Unlock()
}

// dropIdle gives up what its sender has given up.
func (r *replicas) dropIdle(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.arrivals {
		if !a.busy && !a.ending && now.Sub(a.last) > arrivalIdle {
			r.endLocked(id, a)
		}
	}
}

// install brings a whole snapshot into force: the replica's actor is stopped, its state
// replaced, and a new actor opened on it. The tablet is busy.
func (r *replicas) install(id uint64, a *arrival) {
	installed, err := r.replace(id, a.snapshot)
	if err != nil {
		r.fail(id, a, err)
		return
	}
	if !installed { // it has caught up by itself meanwhile
		r.drop(id)
		r.answer(a, &wire.SnapshotAnswer{Installed: true})
		return
	}
	r.unreserve(id)
	r.installed.Add(1)
	r.mu.Lock()
	delete(r.arrivals, id)
	r.arrived[id] = a.id
	r.mu.Unlock()
	r.answer(a, &wire.SnapshotAnswer{Installed: true})
}

// replace stops the replica, installs, and opens it again; false if it needs the snapshot no more.
func (r *replicas) replace(id uint64, snapshot *tablet.Arrival) (bool, error) {
	r.mu.Lock()
	have := r.held[id].id
	r.mu.Unlock()
	if have != snapshot.Replica() {
		return false, errElsewhere
	}
	if err := snapshot.Fits(); err != nil {
		return false, err
	}
	needed, err := false, r.stop(id)
	r.openUnheard()
	if err == nil { // else it may stop yet
		needed, err = r.exchange(id, snapshot)
	}
	if err == nil {
		err = r.open(id, have)
	}
	if err != nil { // whatever is in the store now: openClosed, or the next start, goes on from it
		r.mu.Lock()
		r.held[id].closed = err
		r.mu.Unlock()
	}
	return needed && err == nil, err
}

// exchange installs the snapshot if the replica still needs it.
func (r *replicas) exchange(id uint64, snapshot *tablet.Arrival) (bool, error) {
	before, ok, err := tablet.StoredReplica(r.store, id)
	if err != nil || !ok {
		return false, errors.Join(errElsewhere, err)
	}
	needed, err := needs(r.store, snapshot)
	if err != nil || !needed {
		return false, err
	}
	return true, snapshot.Install(before.Descriptor)
}

// openClosed goes on with replicas that stayed closed when a snapshot could not be
// brought into force: there may be room on the disk again.
func (r *replicas) openClosed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, h := range r.held {
		if h.closed != nil && !h.busy {
			r.doLocked(id, func() { r.openAgain(id) })
		}
	}
}

func (r *replicas) openAgain(id uint64) {
	r.mu.Lock()
	closed := r.held[id].closed
	r.mu.Unlock()
	if closed == nil { // it was destroyed, or a split has opened it
		return
	}
	if err := r.reopen(id); err != nil {
		r.mu.Lock()
		r.held[id].closed = err
		r.mu.Unlock()
		r.logger.Error("a replica stays closed; it is tried again", "tablet", id, "error", err)
	}
}

// errClosed: it is tried every lookInterval to open it again.
var errClosed = errors.New("node: replica is closed")

// Closed is how many replicas stay closed, and why the one with the lowest tablet does;
// nil if none.
func (r *replicas) Closed() (n int, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := uint64(0)
	for id, h := range r.held {
		if h.closed == nil {
			continue
		}
		if n++; n == 1 || id < first {
			first, why = id, h.closed
		}
	}
	if n > 0 {
		why = fmt.Errorf("%w: tablet %d (one of %d), after a snapshot that could not be installed: %w", errClosed, first, n, why)
	}
	return n, why
}

// sendChunk asks a node to take a piece of a snapshot.
func (n *Node) sendChunk(node uint64, deadline time.Time, chunk *wire.SnapshotChunk, then func(*wire.SnapshotAnswer, error)) {
	if n.peers == nil {
		then(nil, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node))
		return
	}
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Snapshot{Snapshot: chunk}}
	n.peers.Tell(node, deadline, req, func(r *wire.PeerResponse, err error) {
		switch {
		case err != nil:
			then(nil, err)
		case r.GetError() != nil:
			then(nil, &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message})
		case r.GetSnapshot() == nil:
			then(nil, fmt.Errorf("node: node %d answered a piece of a snapshot with something else", node))
		default:
			then(r.GetSnapshot(), nil)
		}
	})
}
