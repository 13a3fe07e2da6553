package peer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file bounds what waits for one node and pairs answers with requests.
// Callers on any goroutine put messages in (admit, admitRaft, reply); the outbox's actor
// (sender.go) alone takes them out. A request stays in pending from admit until it is
// settled by its answer, its deadline, or news of its node; callbacks run without the
// mutex.

// outbox holds what is in flight to one node and counts what is handled for it. The counts
// are atomic and the mutex guards the other fields, so any goroutine may use them. The
// actor behind pid (sender) makes the batches.
type outbox struct {
	peers *Peers
	node  uint64
	pid   *actor.PID

	stopped                 atomic.Bool  // the actor has stopped, or is about to
	raft, raftBytes         atomic.Int64 // Raft messages that wait
	answerBytes             atomic.Int64 // answers that wait
	incoming, incomingBytes atomic.Int64 // requests that are handled for the node

	mu          sync.Mutex
	pending     map[uint64]*waiting // by number
	bytes       int                 // of pending
	incarnation uint64              // the newest that was heard of
	down        uint64              // the newest that is known to have ended
	reached     uint64              // how far the incarnation's Raft log has come
	before      uint64              // how far those of earlier ones had
	closed      bool
}

// outgoing is one message for the node: exactly one of request, answer and raft is set.
type outgoing struct {
	request *waiting
	answer  *wire.PeerResponse
	raft    *wire.RaftMessage
	bytes   int
}

// newOutbox returns the outbox of a node and starts its actor.
func newOutbox(p *Peers, node uint64) *outbox {
	box := &outbox{peers: p, node: node, pending: make(map[uint64]*waiting)}
	box.pid = p.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return newSender(box)
	}))
	return box
}

// post hands a message to the actor. Once that has stopped the message is dropped.
func (b *outbox) post(o *outgoing) {
	if !b.stopped.Load() {
		b.peers.system.Root.Send(b.pid, o)
	}
}

// admit adds a request to those without an answer, or returns why there is no room for
// it.
func (b *outbox) admit(w *waiting) error {
	cfg := &b.peers.cfg
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return fmt.Errorf("%w: %w", txn.ErrNotSent, txn.ErrClosed)
	case w.bytes > MaxMessage:
		return fmt.Errorf("%w: peer: %w", txn.ErrNotSent,
			&txn.LimitError{Limit: "message to a node", Size: w.bytes, Max: MaxMessage})
	case len(b.pending) >= cfg.InFlight, b.bytes > 0 && b.bytes+w.bytes > cfg.InFlightBytes:
		return fmt.Errorf("%w: %w: %d requests of %d bytes are under way to node %d",
			txn.ErrNotSent, txn.ErrOverloaded, len(b.pending), b.bytes, b.node)
	}
	b.pending[w.id] = w
	b.bytes += w.bytes
	// The request goes to the newest incarnation, or to a later one, so that the end of
	// an earlier one does not concern it.
	w.to = max(b.incarnation, b.down+1)
	// The mutex makes sure that the timer is set before anybody can want to stop it.
	w.timer = time.AfterFunc(time.Until(w.deadline), w.timeout)
	return nil
}

// forget removes a request from the table and its size from the figures.
func (b *outbox) forget(w *waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending[w.id] == w {
		delete(b.pending, w.id)
		b.bytes -= w.bytes
	}
}

// admitRaft posts a Raft message unless too much waits. It returns false if the message
// was dropped.
func (b *outbox) admitRaft(m *wire.RaftMessage) bool {
	cfg := &b.peers.cfg
	size := proto.Size(m)
	if size > MaxMessage || b.raft.Add(1) > int64(cfg.RaftLimit) {
		b.raft.Add(-1)
		return false
	}
	// One message alone always fits.
	if total := b.raftBytes.Add(int64(size)); total > int64(cfg.RaftBytes) && total > int64(size) {
		b.raftBytes.Add(-int64(size))
		b.raft.Add(-1)
		return false
	}
	b.post(&outgoing{raft: m, bytes: size})
	return true
}

// reply posts an answer. An answer that is too large, or for which there is no room, is
// replaced by CODE_UNKNOWN, since the request may have been done. Large answers, which
// only reads have, may take half of the room.
func (b *outbox) reply(r *wire.PeerResponse) {
	size, room := proto.Size(r), int64(b.peers.cfg.AnswerBytes)
	if size > largeAnswer {
		room /= 2
	}
	if total := b.answerBytes.Add(int64(size)); size > MaxMessage || total > room &&
		total > int64(size) {
		b.answerBytes.Add(-int64(size))
		b.peers.counts.answersDropped.Add(1)
		r = refusal(r.GetId(), unknown, "no room for the answer of %d bytes", size)
		size = proto.Size(r)
		b.answerBytes.Add(int64(size))
	}
	b.post(&outgoing{answer: r, bytes: size})
}

// hear notes the incarnation of a batch from the node, and how far its Raft log has come. It
// returns false if a later one has been heard of. A new incarnation implies that all earlier
// ones have ended.
func (b *outbox) hear(incarnation, reached uint64) bool {
	b.mu.Lock()
	last := b.incarnation
	if incarnation > last {
		b.before = max(b.before, b.reached)
		b.incarnation, b.reached = incarnation, 0
	}
	if incarnation == b.incarnation {
		b.reached = max(b.reached, reached)
	}
	b.mu.Unlock()
	if last != 0 && incarnation > last {
		b.ended(incarnation - 1)
	}
	return incarnation >= last
}

// ended fails what was asked of the incarnation or of an earlier one.
func (b *outbox) ended(incarnation uint64) {
	b.mu.Lock()
	known := incarnation <= b.down
	b.down = max(b.down, incarnation)
	b.mu.Unlock()
	// Gossip and a batch may both report the end; the second report changes nothing.
	if known {
		return
	}
	b.failWhere(func(w *waiting) bool { return w.to <= incarnation })
}

// lost fails what was on its way when a connection ended. What has not been sent yet
// waits for the next connection.
func (b *outbox) lost() {
	b.failWhere(func(w *waiting) bool { return w.state.Load() == onItsWay })
}

// failWhere fails the requests for which matches returns true. The callers are told
// without the mutex.
func (b *outbox) failWhere(matches func(*waiting) bool) {
	var failed []*waiting
	b.mu.Lock()
	for _, w := range b.pending {
		if matches(w) {
			failed = append(failed, w)
		}
	}
	b.mu.Unlock()
	for _, w := range failed {
		w.fail(fmt.Errorf("%w: node %d", ErrLost, b.node))
	}
}

// close fails what is left. It must be called after the actor has stopped.
func (b *outbox) close() {
	b.mu.Lock()
	b.closed = true
	left := make([]*waiting, 0, len(b.pending))
	for _, w := range b.pending {
		left = append(left, w)
	}
	b.mu.Unlock()
	for _, w := range left {
		w.fail(txn.ErrClosed)
	}
}

// answered settles the request that the answer is for. It returns false if nobody waits
// for it any more.
func (b *outbox) answered(r *wire.PeerResponse) bool {
	b.mu.Lock()
	w := b.pending[r.GetId()]
	b.mu.Unlock()
	if w == nil {
		return false
	}
	w.settle(r, nil)
	return true
}
