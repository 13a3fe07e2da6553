package peer

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file takes apart what other nodes send. receive runs on the link's goroutine, one
// batch of each node at a time, and does not block: the handler replies later, on any
// goroutine. In flight are the requests being handled, counted per node until they are
// replied to or their time is over; the atomic figures in the outbox bound them.

// unknown is the code of an answer that says nothing of what was done.
const unknown = pb.Error_CODE_UNKNOWN

// grace is how long after its deadline a request keeps its room if the handler has not
// replied.
const grace = time.Second

// receive takes a batch of another node apart. The link calls it.
func (p *Peers) receive(b *wire.PeerBatch) {
	tooMany := len(b.GetRaft())+len(b.GetResponses())+len(b.GetRequests()) > maxBatchMessages
	if tooMany || b.GetClusterId() != p.self.ClusterID || b.GetToNode() != p.self.NodeID ||
		b.GetFromNode() == p.self.NodeID {
		p.counts.foreign.Add(1)
		return
	}
	box, err := p.box(b.GetFromNode())
	if err != nil || !box.hear(b.GetFromIncarnation()) {
		p.counts.foreign.Add(1)
		return
	}
	for _, m := range b.GetRaft() {
		// Raft knows replicas by their nodes: a batch must not carry words of a third
		// node.
		if m.GetFromNode() == box.node && m.GetToNode() == p.self.NodeID {
			p.takeRaft(m)
		}
	}
	for _, r := range b.GetResponses() {
		if box.answered(r) {
			p.counts.answers.Add(1)
		} else {
			p.counts.late.Add(1)
		}
	}
	for _, r := range b.GetRequests() {
		p.take(box, r)
	}
}

// takeRaft gives a Raft message to the handler and survives its panic.
func (p *Peers) takeRaft(m *wire.RaftMessage) {
	defer func() {
		if r := recover(); r != nil {
			p.panicked("raft", r)
		}
	}()
	p.handler.Raft(m)
}

// handled is a request of another node that is being handled here. done decides who
// replies, the handler or the timer; whoever does gives the room back.
type handled struct {
	box   *outbox
	id    uint64
	bytes int64
	done  atomic.Bool
	mu    sync.Mutex  // so that the timer is set before it is stopped
	timer *time.Timer // answers for a handler that does not
}

// take hands a request to the handler, or refuses it for want of room.
func (p *Peers) take(box *outbox, req *wire.PeerRequest) {
	h := &handled{box: box, id: req.GetId(), bytes: int64(proto.Size(req))}
	if box.incoming.Add(1) > int64(p.cfg.Incoming) {
		box.incoming.Add(-1)
		p.refuse(h, "node %d handles %d requests of yours", p.self.NodeID, p.cfg.Incoming)
		return
	}
	// One alone always fits, whatever the bound.
	if total := box.incomingBytes.Add(h.bytes); total > int64(p.cfg.IncomingBytes) &&
		total > h.bytes {
		box.incomingBytes.Add(-h.bytes)
		box.incoming.Add(-1)
		p.refuse(h, "node %d handles %d bytes of requests of yours", p.self.NodeID, total)
		return
	}
	p.counts.handled.Add(1)
	timeout := p.cfg.Timeout
	if ms := req.GetTimeoutMs(); ms > 0 {
		timeout = min(time.Duration(ms)*time.Millisecond, maxTimeout)
	}
	deadline := time.Now().Add(timeout)
	// An actor whose handler panics loses the message, and nobody would give its room back.
	h.mu.Lock()
	h.timer = time.AfterFunc(timeout+grace, func() {
		h.reply(refusal(h.id, unknown, "no answer in time"))
	})
	h.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			p.panicked("request", r)
			h.reply(refusal(h.id, pb.Error_CODE_INTERNAL, "the handler panicked"))
		}
	}()
	p.handler.Request(box.node, deadline, req, h.reply)
}

// refuse answers a request that was not taken. It was surely not done.
func (p *Peers) refuse(h *handled, format string, args ...any) {
	p.counts.refused.Add(1)
	r := refusal(h.id, pb.Error_CODE_OVERLOADED, format, args...)
	r.Error.RetryAfterMs = 10
	h.box.reply(r)
}

// reply sends the answer the first time that it is called, and does nothing after that.
func (h *handled) reply(r *wire.PeerResponse) {
	if !h.done.CompareAndSwap(false, true) {
		return
	}
	h.mu.Lock()
	h.timer.Stop()
	h.mu.Unlock()
	h.box.incoming.Add(-1)
	h.box.incomingBytes.Add(-h.bytes)
	h.box.reply(&wire.PeerResponse{Id: h.id, Error: r.GetError(), Body: r.GetBody()})
}

// refusal returns an answer that has only an error.
func refusal(id uint64, code pb.Error_Code, format string, args ...any) *wire.PeerResponse {
	return &wire.PeerResponse{
		Id: id, Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)},
	}
}

// panicked counts and logs a panic of the handler.
func (p *Peers) panicked(where string, r any) {
	p.counts.panics.Add(1)
	p.cfg.Logger.Error("handler of another node's message panicked", "message", where, "panic",
		fmt.Sprint(r), "stack", string(debug.Stack()))
}
