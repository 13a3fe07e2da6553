package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// ErrLost reports that the connection or the node ended while the request was in flight. The
// outcome is unknown.
var ErrLost = errors.New("peer: connection lost before the answer")

// Handler handles messages from other nodes.
type Handler interface {
	// Request handles a request of another node and calls reply once, on any goroutine. It
	// must not block. The message belongs to the handler. An answer after the deadline is
	// dropped.
	Request(from uint64, deadline time.Time, req *wire.PeerRequest, reply func(*wire.PeerResponse))
	// Raft accepts a Raft message. It must not block.
	Raft(m *wire.RaftMessage)
}

// Peers sends messages to the other nodes. Its methods may be called on any goroutine, also
// concurrently; only Call and Close block.
//
// The mutex guards only boxes and closed. Each outbox has its own mutex for the messages in
// flight to its node.
type Peers struct {
	link    Link
	self    Self
	handler Handler
	cfg     Config
	system  *actor.ActorSystem
	own     bool // New created system, and Close shuts it down
	ids     atomic.Uint64
	counts  counts

	mu     sync.Mutex
	boxes  map[uint64]*outbox // by node; they stay until Close
	closed bool
}

// New returns Peers that send over the link as node self. Close closes the link. The handler
// must be ready: the first message may arrive before New returns.
func New(link Link, self Self, handler Handler, cfg Config) *Peers {
	p := &Peers{
		link: link, self: self, handler: handler, cfg: cfg.withDefaults(),
		boxes: make(map[uint64]*outbox),
	}
	if p.system = p.cfg.System; p.system == nil {
		p.system, p.own = actorkit.NewSystem(p.cfg.Logger), true
	}
	// Request numbers differ between incarnations, so that an answer to the previous incarnation
	// matches no request of this one.
	p.ids.Store(self.Incarnation << 40)
	link.Lost(p.lost)
	link.Receive(p.receive)
	return p
}

// Call sends a request to a node and waits for the answer or the end of ctx, or for 30 s
// (defaultTimeout) if ctx has no deadline. The request must not be changed afterwards. A response
// with Error set is an answer; an error means that none arrived. The error wraps txn.ErrNotSent if
// the request was certainly not sent, and also txn.ErrOverloaded if too many requests to the node
// are in flight.
func (p *Peers) Call(ctx context.Context, node uint64,
	req *wire.PeerRequest) (*wire.PeerResponse, error) {
	type outcome struct {
		resp *wire.PeerResponse
		err  error
	}
	got := make(chan outcome, 1)
	deadline, _ := ctx.Deadline()
	w := p.start(node, deadline, req, func(resp *wire.PeerResponse, err error) {
		got <- outcome{resp, err}
	})
	select {
	case o := <-got:
		return o.resp, o.err
	case <-ctx.Done():
		// An answer that arrives at the same moment prevails.
		if w != nil {
			w.expire(ctx.Err())
		}
		o := <-got // the request is settled, so the callback has been called or is being called
		return o.resp, o.err
	}
}

// Tell sends a request to the node without waiting for the response. It calls then once with the
// response, or an error as of Call, on any goroutine and perhaps before it returns; then must not
// block. A zero deadline means defaultTimeout.
func (p *Peers) Tell(node uint64, deadline time.Time, req *wire.PeerRequest,
	then func(*wire.PeerResponse, error)) {
	p.start(node, deadline, req, then)
}

// start returns the request in flight, or nil if then has already been called.
func (p *Peers) start(node uint64, deadline time.Time, req *wire.PeerRequest,
	then func(*wire.PeerResponse, error)) *waiting {
	box, err := p.box(node)
	if err != nil {
		then(nil, err)
		return nil
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(defaultTimeout)
	}
	w := &waiting{
		box: box, id: p.ids.Add(1), body: req, bytes: proto.Size(req), deadline: deadline,
		then: then,
	}
	if err := box.admit(w); err != nil {
		p.counts.overloaded.Add(1)
		then(nil, err)
		return nil
	}
	p.counts.requests.Add(1)
	box.post(&outgoing{request: w, bytes: w.bytes})
	return w
}

// Reached returns the highest durable Raft log position that a node's incarnations before the
// given one reported to this process, or 0 if they reported none.
func (p *Peers) Reached(node, incarnation uint64) uint64 {
	box := p.known(node)
	if box == nil {
		return 0
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.incarnation < incarnation {
		return max(box.before, box.reached)
	}
	return box.before
}

// Raft sends a Raft message to m.ToNode. If that node's queue is full it drops and counts the
// message, which the Raft protocol repeats.
func (p *Peers) Raft(m *wire.RaftMessage) {
	box, err := p.box(m.GetToNode())
	if err != nil || !box.admitRaft(m) {
		p.counts.raftDropped.Add(1)
		return
	}
	p.counts.raft.Add(1)
}

// Down fails the requests to the node's incarnation and to earlier ones. The outcome of
// those that were sent is unknown.
func (p *Peers) Down(node, incarnation uint64) {
	if box := p.known(node); box != nil {
		box.ended(incarnation)
	}
	p.link.Down(node, incarnation)
}

// Close closes the link and fails unanswered requests. Later replies of handlers are dropped.
func (p *Peers) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	boxes := p.boxes
	p.mu.Unlock()
	// First the link, so that no batch arrives for an outbox that is being closed.
	err := p.link.Close()
	for _, box := range boxes {
		box.stopped.Store(true)
		// The actor never blocks, so only a timeout can fail this.
		err = errors.Join(err, p.system.Root.StopFuture(box.pid).Wait())
		box.close()
	}
	if p.own {
		p.system.Shutdown()
	}
	return err
}

// box returns the outbox of a node, and creates it if it does not exist.
func (p *Peers) box(node uint64) (*outbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, txn.Errorf("%w: %w: this node is stopping", txn.ErrNotSent, txn.ErrClosed)
	}
	if box := p.boxes[node]; box != nil {
		return box, nil
	}
	switch {
	case node == 0 || node == p.self.NodeID:
		return nil, fmt.Errorf("%w: peer: node %d is 0 or this node", txn.ErrNotSent, node)
	case len(p.boxes) >= maxNodes:
		return nil, fmt.Errorf("%w: peer: limit of %d nodes reached", txn.ErrNotSent,
			maxNodes)
	}
	box := newOutbox(p, node)
	p.boxes[node] = box
	return box, nil
}

// known returns the outbox of a node, or nil if no message was ever exchanged with it.
func (p *Peers) known(node uint64) *outbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boxes[node]
}

// lost fails the requests in flight to the node. The link calls it when a connection ends.
func (p *Peers) lost(node uint64) {
	if box := p.known(node); box != nil {
		box.lost()
	}
}
