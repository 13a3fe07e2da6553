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

// Bounds of the messages to one node, and matching of answers to requests.
// Callers on any goroutine put messages in (admit, admitRaft, reply); only the outbox's
// actor (sender.go) removes them. A request stays in pending from admit until it is settled
// (waiting.go); callbacks run without the mutex.

// outbox holds the messages in flight to one node and counts the requests handled for it. The
// counts are atomic and the mutex guards the other fields, so any goroutine may use them. The
// actor behind pid (sender) builds the batches.
type outbox struct {
	peers *Peers
	node  uint64
	pid   *actor.PID

	stopped                 atomic.Bool  // the actor has stopped or is stopping
	raft, raftBytes         atomic.Int64 // queued Raft messages
	answerBytes             atomic.Int64 // queued answers
	incoming, incomingBytes atomic.Int64 // requests being handled for the node

	mu          sync.Mutex
	pending     map[uint64]*waiting // by number
	bytes       int                 // bytes of the requests in pending
	incarnation uint64              // the node's newest known one
	down        uint64              // its newest incarnation known to have ended
	reached     uint64              // durable Raft log position of incarnation
	before      uint64              // highest such position of earlier incarnations
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

// post passes a message to the actor. Once the actor has stopped, the message is dropped.
func (b *outbox) post(o *outgoing) {
	if !b.stopped.Load() {
		b.peers.system.Root.Send(b.pid, o)
	}
}

// admit adds a request to the unanswered ones, or returns which bound it exceeds, or that the
// outbox is closed.
func (b *outbox) admit(w *waiting) error {
	cfg := &b.peers.cfg
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return txn.Errorf("%w: %w: this node is stopping", txn.ErrNotSent, txn.ErrClosed)
	case w.bytes > MaxMessage:
		return txn.Errorf("%w to node %d: %w", txn.ErrNotSent, b.node,
			&txn.LimitError{Limit: "message", Size: w.bytes, Max: MaxMessage})
	case len(b.pending) >= cfg.InFlight, b.bytes > 0 && b.bytes+w.bytes > cfg.InFlightBytes:
		return txn.Errorf("%w: %w: %d requests of %d bytes are in flight to node %d",
			txn.ErrNotSent, txn.ErrOverloaded, len(b.pending), b.bytes, b.node)
	}
	b.pending[w.id] = w
	b.bytes += w.bytes
	// The request goes to the newest incarnation or a later one, so the end of an earlier one
	// does not fail it.
	w.to = max(b.incarnation, b.down+1)
	// The mutex ensures that the timer is set before another goroutine stops it.
	w.timer = time.AfterFunc(time.Until(w.deadline), w.timeout)
	return nil
}

// forget removes a request from pending and its size from bytes.
func (b *outbox) forget(w *waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending[w.id] == w {
		delete(b.pending, w.id)
		b.bytes -= w.bytes
	}
}

// admitRaft posts a Raft message, or drops it and returns false if it is larger than MaxMessage or
// the queue is full.
func (b *outbox) admitRaft(m *wire.RaftMessage) bool {
	cfg := &b.peers.cfg
	size := proto.Size(m)
	if size > MaxMessage || b.raft.Add(1) > int64(cfg.RaftLimit) {
		b.raft.Add(-1)
		return false
	}
	// A single message always fits.
	if total := b.raftBytes.Add(int64(size)); total > int64(cfg.RaftBytes) && total > int64(size) {
		b.raftBytes.Add(-int64(size))
		b.raft.Add(-1)
		return false
	}
	b.post(&outgoing{raft: m, bytes: size})
	return true
}

// reply posts an answer. It replaces an answer that is too large, or exceeds the bound, by
// CODE_UNKNOWN, since the request may have been executed. Large answers, which only reads
// have, may use half of the bound.
func (b *outbox) reply(r *wire.PeerResponse) {
	size, room := proto.Size(r), int64(b.peers.cfg.AnswerBytes)
	if size > largeAnswer {
		room /= 2
	}
	if total := b.answerBytes.Add(int64(size)); size > MaxMessage || total > room &&
		total > int64(size) {
		b.answerBytes.Add(-int64(size))
		b.peers.counts.answersDropped.Add(1)
		r = refusal(r.GetId(), unknown, "the answer of %d bytes exceeds the limit of one answer "+
			"or of all queued answers", size)
		size = proto.Size(r)
		b.answerBytes.Add(int64(size))
	}
	b.post(&outgoing{answer: r, bytes: size})
}

// recordSender records the incarnation of a batch from the node and its Raft log position. It returns
// false if a later incarnation is known. A new incarnation implies that all earlier ones have
// ended.
func (b *outbox) recordSender(incarnation, reached uint64) bool {
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

// ended fails the requests to the incarnation and to earlier ones.
func (b *outbox) ended(incarnation uint64) {
	b.mu.Lock()
	known := incarnation <= b.down
	b.down = max(b.down, incarnation)
	b.mu.Unlock()
	// Gossip and a batch may both report the end; the second report changes nothing.
	if known {
		return
	}
	b.failWhere(b.lostError(), func(w *waiting) bool { return w.to <= incarnation })
}

// lost fails the requests that were in flight when a connection ended. Those that are still in the
// outbox wait for the next connection; the link reports the outcome of the batches that it holds.
func (b *outbox) lost() {
	b.failWhere(b.lostError(), func(w *waiting) bool { return w.state.Load() == sent })
}

func (b *outbox) lostError() error { return fmt.Errorf("%w: node %d", ErrLost, b.node) }

// failWhere fails the requests for which matches returns true. It calls their callbacks
// without holding the mutex.
func (b *outbox) failWhere(cause error, matches func(*waiting) bool) {
	var failed []*waiting
	b.mu.Lock()
	for _, w := range b.pending {
		if matches(w) {
			failed = append(failed, w)
		}
	}
	b.mu.Unlock()
	for _, w := range failed {
		w.fail(cause)
	}
}

// close fails the remaining requests. It must be called after the actor has stopped.
func (b *outbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.failWhere(txn.ErrClosed, func(*waiting) bool { return true })
}

// answered settles the request with the answer. It returns false if the request has been
// settled before.
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
