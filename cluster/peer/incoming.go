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

// unknown is the code of an answer that says nothing.
const unknown = pb.Error_CODE_UNKNOWN

// grace is how long after its deadline a request's room is kept for a handler that is slow.
const grace = time.Second

// receive takes a batch of another node apart. It is called by the link.
func (p *Peers) receive(b *wire.PeerBatch) {
	tooMany := len(b.GetRaft())+len(b.GetResponses())+len(b.GetRequests()) > maxBatchMessages
	if tooMany || b.GetClusterId() != p.self.ClusterID || b.GetToNode() != p.self.NodeID || b.GetFromNode() == p.self.NodeID {
		p.counts.foreign.Add(1)
		return
	}
	box, err := p.box(b.GetFromNode())
	if err != nil || !box.hear(b.GetFromIncarnation()) {
		p.counts.foreign.Add(1)
		return
	}
	for _, m := range b.GetRaft() {
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

// takeRaft gives a Raft message to the handler.
func (p *Peers) takeRaft(m *wire.RaftMessage) {
	defer func() {
		if r := recover(); r != nil {
			p.panicked("raft", r)
		}
	}()
	p.handler.Raft(m)
}

// handled is a request of another node that is being handled here.
type handled struct {
	box   *outbox
	id    uint64
	bytes int64
	done  atomic.Bool
	mu    sync.Mutex  // so that the timer is set before it is stopped
	timer *time.Timer // answers for a handler that does not

	req      *wire.PeerRequest
	deadline time.Time
	read     bool // there is a room for its answer
	again    bool // that may take more than was asked for

	// Of a read, under the room's mutex.
	part        int         // of the room
	wants, held int64       // bytes
	patience    *time.Timer // while it waits
}

// take has a request handled, or refuses it.
func (p *Peers) take(box *outbox, req *wire.PeerRequest) {
	h := &handled{box: box, id: req.GetId(), bytes: int64(proto.Size(req))}
	if box.incoming.Add(1) > int64(p.cfg.Incoming) {
		box.incoming.Add(-1)
		p.refuse(h, "node %d handles %d requests of yours", p.self.NodeID, p.cfg.Incoming)
		return
	}
	if total := box.incomingBytes.Add(h.bytes); total > int64(p.cfg.IncomingBytes) && total > h.bytes {
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
	h.req, h.deadline = req, time.Now().Add(timeout)
	// An actor whose handler panics loses the message, and nobody would give its room back.
	h.mu.Lock()
	h.timer = time.AfterFunc(timeout+grace, func() { h.reply(refusal(h.id, unknown, "no answer in time")) })
	h.mu.Unlock()
	if n := answerRoom(req.GetTablet()); n > 0 {
		h.read, h.again = true, req.GetTablet().GetMaxAnswerBytes() == 0
		if !p.room.begin(h, n) {
			p.counts.readsWaited.Add(1)
			return
		}
	}
	h.begin()
}

// begin has the request handled.
func (h *handled) begin() {
	p := h.box.peers
	defer func() {
		if r := recover(); r != nil {
			p.panicked("request", r)
			h.reply(refusal(h.id, pb.Error_CODE_INTERNAL, "the handler panicked"))
		}
	}()
	p.handler.Request(h.box.node, h.deadline, h.req, h.reply)
}

// refuse answers a request that was not taken.
func (p *Peers) refuse(h *handled, format string, args ...any) {
	p.counts.refused.Add(1)
	r := refusal(h.id, pb.Error_CODE_OVERLOADED, format, args...)
	r.Error.RetryAfterMs = 10
	h.box.reply(r, proto.Size(r), hold{})
}

// reply sends the answer, the first time that it is called, or has the read done again
// when there is room for its answer.
func (h *handled) reply(r *wire.PeerResponse) {
	if h.done.Load() {
		return
	}
	out := &wire.PeerResponse{Id: h.id, Error: r.GetError(), Body: r.GetBody()}
	size, room := proto.Size(out), h.box.peers.room
	var held hold
	if h.read {
		again := h.again && r.GetError() == nil && r.GetTablet().GetError() == nil
		var ok bool
		if held, ok = room.settle(h, int64(size), again); !ok {
			return
		}
	}
	if !h.done.CompareAndSwap(false, true) {
		room.give(h.box, held)
		return
	}
	h.mu.Lock()
	h.timer.Stop()
	h.mu.Unlock()
	h.box.incoming.Add(-1)
	h.box.incomingBytes.Add(-h.bytes)
	h.box.reply(out, size, held)
}

func refusal(id uint64, code pb.Error_Code, format string, args ...any) *wire.PeerResponse {
	return &wire.PeerResponse{Id: id, Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

func (p *Peers) panicked(where string, r any) {
	p.counts.panics.Add(1)
	p.cfg.Logger.Error("handler of another node's message panicked", "message", where, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
}
