package peer

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Handling of batches from other nodes. receive runs on the link's goroutine, for one batch
// of each node at a time, and does not block: the handler replies later, on any goroutine.
// Atomic counts in each node's outbox bound its requests until they are answered or time out.

// unknown is the code of an answer whose request may or may not have been executed.
const unknown = pb.Error_CODE_UNKNOWN

// grace is the time after its deadline for which an unanswered request counts toward the bounds.
const grace = time.Second

// receive dispatches the messages of a batch. The link calls it.
func (p *Peers) receive(b *wire.PeerBatch) {
	tooMany := len(b.GetRaft())+len(b.GetResponses())+len(b.GetRequests()) > maxBatchMessages
	if tooMany || b.GetClusterId() != p.self.ClusterID || b.GetToNode() != p.self.NodeID ||
		b.GetFromNode() == p.self.NodeID {
		p.counts.foreign.Add(1)
		return
	}
	if p.cfg.Gate != nil {
		sender := version.RangeOf(b.GetVersion(), b.GetVersion())
		// Package join refuses such builds; this drops batches of a process that was paused
		// since before the agreement.
		if sender.Newest < p.cfg.Gate.Agreed().Minimum {
			p.counts.foreign.Add(1)
			return
		}
	}
	box, err := p.box(b.GetFromNode())
	if err != nil || !box.recordSender(b.GetFromIncarnation(), b.GetLogReached()) {
		p.counts.foreign.Add(1)
		return
	}
	for _, m := range b.GetRaft() {
		// Raft identifies replicas by their nodes, so a batch may contain only Raft messages
		// of its sender.
		if m.GetFromNode() == box.node && m.GetToNode() == p.self.NodeID {
			p.handleRaft(m)
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
		p.handle(box, r)
	}
}

// version returns the newest version that this node's build knows; 0 without a gate.
func (p *Peers) version() uint32 {
	if p.cfg.Gate == nil {
		return 0
	}
	return uint32(p.cfg.Gate.Build().Newest)
}

// handleRaft passes a Raft message to the handler and recovers from its panic.
func (p *Peers) handleRaft(m *wire.RaftMessage) {
	defer func() {
		if r := recover(); r != nil {
			p.panicked("raft", r)
		}
	}()
	p.handler.Raft(m)
}

// handled is a request of another node that this node handles. Whichever sets done first,
// the handler or the timer, replies and subtracts the request from the outbox's counts.
type handled struct {
	box   *outbox
	id    uint64
	bytes int64
	done  atomic.Bool
	mu    sync.Mutex  // makes sure that the timer is set before it is stopped
	timer *time.Timer // replies if the handler does not
}

// handle passes a request to the handler, or refuses it if a bound is reached.
func (p *Peers) handle(box *outbox, req *wire.PeerRequest) {
	h := &handled{box: box, id: req.GetId(), bytes: int64(proto.Size(req))}
	if box.incoming.Add(1) > int64(p.cfg.Incoming) {
		box.incoming.Add(-1)
		p.refuse(h, "node %d is handling %d requests of node %d, as many as it accepts",
			p.self.NodeID, p.cfg.Incoming, box.node)
		return
	}
	// A single request always fits, whatever its size.
	if total := box.incomingBytes.Add(h.bytes); total > incomingBytes &&
		total > h.bytes {
		box.incomingBytes.Add(-h.bytes)
		box.incoming.Add(-1)
		p.refuse(h, "node %d would be handling %d bytes of requests of node %d; at most %d",
			p.self.NodeID, total, box.node, incomingBytes)
		return
	}
	p.counts.handled.Add(1)
	timeout := defaultTimeout
	if ms := req.GetTimeoutMs(); ms > 0 {
		timeout = min(time.Duration(ms)*time.Millisecond, maxTimeout)
	}
	deadline := time.Now().Add(timeout)
	// An actor that panics loses the message; without the timer it would count forever.
	h.mu.Lock()
	h.timer = time.AfterFunc(timeout+grace, func() {
		h.reply(refusal(h.id, unknown, "node %d did not complete the request in time", p.self.NodeID))
	})
	h.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			p.panicked("request", r)
			h.reply(refusal(h.id, pb.Error_CODE_INTERNAL,
				"node %d panicked while handling the request: see its log", p.self.NodeID))
		}
	}()
	p.handler.Request(box.node, deadline, req, h.reply)
}

// refuse answers a request with CODE_OVERLOADED: it was certainly not executed.
func (p *Peers) refuse(h *handled, format string, args ...any) {
	p.counts.refused.Add(1)
	r := refusal(h.id, pb.Error_CODE_OVERLOADED, format, args...)
	r.Error.RetryAfterMs = 10
	h.box.reply(r)
}

// reply sends the answer on its first call; later calls do nothing.
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

// refusal returns an answer that contains only an error.
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
