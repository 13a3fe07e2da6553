package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Caller asks another node: *peer.Peers.
type Caller interface {
	// Call waits for the answer. An error wraps txn.ErrNotSent if the question was surely not sent.
	Call(ctx context.Context, node uint64, req *wire.PeerRequest) (*wire.PeerResponse, error)
	// Tell is Call without waiting; then is called once, on any goroutine.
	Tell(node uint64, deadline time.Time, req *wire.PeerRequest, then func(*wire.PeerResponse, error))
}

// Carrier carries operations to tablets, whichever node leads them. It may be used by any
// number of goroutines.
//
// It never sends a mutation again by itself after one of which it is not known whether it
// was done: who may, knows the operation (package txn; Meta's conditional writes).
type Carrier struct {
	router  *Router
	self    uint64
	peers   Caller  // nil: there are no other nodes
	members Members // nil: likewise
}

// NewCarrier returns a carrier for the node. peers and members are nil on a node that is alone.
func NewCarrier(router *Router, self uint64, peers Caller, members Members) *Carrier {
	return &Carrier{router: router, self: self, peers: peers, members: members}
}

// overloadedRetry is the hint in refusals of a full queue.
const overloadedRetry = 5 * time.Millisecond

// attemptTimeout bounds one question to another node. A dead node is known by gossip
// sooner (then its questions fail at once); this is for what gossip does not see: a way
// that is cut in one direction, an answer that was lost.
const attemptTimeout = 3 * time.Second

// Send carries one operation to the tablet's leader: at once where this replica leads,
// else to the node that is believed to lead, and then to the others, each once. The
// answer of one that does not lead tells where to go on. An error means that there was no
// answer: the outcome is unknown, unless it wraps txn.ErrNotSent.
func (c *Carrier) Send(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	at := c.router.route(d.GetTabletId())
	if at.port == nil || (at.leader != 0 && at.leader != c.self) {
		return c.around(ctx, d, req)
	}
	r, err := AskPort(ctx, at.port, d.GetTabletId(), req)
	if err == nil && !elsewhere(r) {
		return r, nil
	}
	if err != nil && (ctx.Err() != nil || !wire.OperationOf(req).Has(wire.Repeats)) {
		return nil, err
	}
	w := &wander{Carrier: c, d: d, req: req, tried: []uint64{c.self}}
	w.learn(c.self, r)
	return w.on(ctx)
}

// AskPort has one of this node's replicas do the operation. A full queue is an answer.
func AskPort(ctx context.Context, port *TabletPort, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	r, err := port.Ask(ctx, req, wire.OperationOf(req).Has(wire.Finishes))
	if errors.Is(err, actorkit.ErrOverloaded) {
		return Overloaded(port, tablet), nil
	}
	return r, err
}

// Overloaded is the answer of a replica whose queue is full. Surely not done.
func Overloaded(port *TabletPort, tablet uint64) *pb.TabletResponse {
	r := serverError(pb.Error_CODE_OVERLOADED, "tablet %d has %d operations waiting", tablet, port.Queued())
	r.Error.RetryAfterMs = uint32(overloadedRetry.Milliseconds())
	return r
}

func serverError(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// Elsewhere is a node's answer about a tablet that it has no replica of: whatever it
// knows of where to ask.
func (r *Router) Elsewhere(id uint64) *pb.TabletResponse {
	at := r.route(id)
	out := serverError(pb.Error_CODE_NOT_LEADER, "tablet %d is not on this node", id)
	out.Error.LeaderNode = at.leader
	if at.descriptor != nil {
		out.Error.Descriptors = []*pb.TabletDescriptor{at.descriptor}
	}
	return out
}

func (c *Carrier) around(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	return (&wander{Carrier: c, d: d, req: req}).on(ctx)
}

// wander is one operation's way from node to node until one of them does it.
type wander struct {
	*Carrier
	d     *pb.TabletDescriptor // as the sender knows it; its replicas may be missing
	req   *pb.TabletRequest
	tried []uint64
	hint  uint64             // who is said to lead, by the last answer
	last  *pb.TabletResponse // the last refusal
	err   error              // why the last node was not reached
	lost  bool               // a node that should have a replica has none, or was not reached: the map may be old
}

// on asks node after node. What it returns if none of them leads was surely not done.
func (w *wander) on(ctx context.Context) (*pb.TabletResponse, error) {
	for {
		node := w.next()
		if node == 0 {
			break
		}
		w.tried = append(w.tried, node)
		r, err := w.once(ctx, node)
		switch {
		case err == nil && !elsewhere(r):
			w.router.Led(w.d.GetTabletId(), node)
			w.heal(ctx, r)
			return r, nil
		case err == nil:
			w.learn(node, r)
			continue
		}
		w.router.Unled(w.d.GetTabletId(), node)
		if ctx.Err() != nil || (!errors.Is(err, txn.ErrNotSent) && !wire.OperationOf(w.req).Has(wire.Repeats)) {
			return nil, err
		}
		w.err, w.lost = err, true
	}
	if w.lost || w.last == nil {
		w.refresh(ctx)
	}
	switch {
	case w.last != nil:
		return w.last, nil
	case w.err != nil:
		return serverError(pb.Error_CODE_UNAVAILABLE, "no node with a replica of tablet %d was reached: %v", w.d.GetTabletId(), w.err), nil
	}
	return serverError(pb.Error_CODE_UNAVAILABLE, "no replica of tablet %d is known", w.d.GetTabletId()), nil
}

// next is the node to ask; 0 if all have been asked that may know.
func (w *wander) next() uint64 {
	untried := func(node uint64) bool { return node != 0 && !slices.Contains(w.tried, node) }
	at := w.router.route(w.d.GetTabletId())
	for _, hint := range []uint64{w.hint, at.leader} {
		if untried(hint) {
			return hint
		}
	}
	known := at.descriptor
	if known == nil || known.Epoch < w.d.GetEpoch() && len(w.d.GetReplicas()) > 0 {
		known = w.d
	}
	for _, learners := range []bool{false, true} { // a learner does not lead, but knows who does
		for _, r := range known.GetReplicas() {
			if r.Learner == learners && untried(r.NodeId) {
				return r.NodeId
			}
		}
	}
	if w.d.GetTabletId() != MetaTablet || w.members == nil {
		return 0
	}
	return w.askAround(untried)
}

// askAround finds a member to ask for meta, which no map tells the place of: first who
// says that it leads it.
func (w *wander) askAround(untried func(uint64) bool) uint64 {
	var best Member
	for _, m := range w.members.Alive() {
		if untried(m.NodeID) && (best.NodeID == 0 || m.LeadsMeta > best.LeadsMeta) {
			best = m
		}
	}
	return best.NodeID
}

// once asks one node.
func (w *wander) once(ctx context.Context, node uint64) (*pb.TabletResponse, error) {
	id := w.d.GetTabletId()
	if node == w.self {
		port := w.router.Port(id)
		if port == nil {
			return w.router.Elsewhere(id), nil
		}
		return AskPort(ctx, port, id, w.req)
	}
	if w.peers == nil {
		return nil, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req := w.req
	if req.TabletId != id {
		req = &pb.TabletRequest{TabletId: id, Epoch: req.Epoch, DeadlineMs: req.DeadlineMs, MaxAnswerBytes: req.MaxAnswerBytes, Op: req.Op}
	}
	r, err := w.peers.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Tablet{Tablet: req}})
	switch {
	case err != nil:
		return nil, err
	case r.GetError() != nil:
		return &pb.TabletResponse{Error: r.Error}, nil
	case r.GetTablet() == nil:
		return nil, fmt.Errorf("cluster: node %d answered tablet %d with something else", node, id)
	}
	return r.GetTablet(), nil
}

// learn takes note of a refusal and of what it says about where to ask.
func (w *wander) learn(node uint64, r *pb.TabletResponse) {
	if r == nil {
		return
	}
	id, e := w.d.GetTabletId(), r.GetError()
	for _, d := range e.GetDescriptors() {
		w.router.Update(d)
	}
	w.lost = w.lost || len(e.GetDescriptors()) > 0 || e.GetCode() == pb.Error_CODE_UNAVAILABLE
	w.last, w.hint = r, e.GetLeaderNode()
	if s := r.GetStatus(); s != nil {
		w.hint = s.GetLeaderNode()
		w.last = serverError(pb.Error_CODE_NOT_LEADER, "tablet %d: no leader is known", id)
	}
	if w.hint != 0 && w.hint != node {
		w.router.Led(id, w.hint)
		return
	}
	w.router.Unled(id, node)
}

// elsewhere reports whether the answer is of a replica that surely has not done the
// operation while another may do it.
func elsewhere(r *pb.TabletResponse) bool {
	switch r.GetError().GetCode() {
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_UNAVAILABLE:
		return true
	}
	s := r.GetStatus()
	return s != nil && !s.GetLeader() // any replica answers that one; its leader's is the one that is meant
}

// heal takes what an answer says of the tablet's range into the map. Where it says
// nothing new, meta is asked: what the sender believes came from here.
func (w *wander) heal(ctx context.Context, r *pb.TabletResponse) {
	if r.GetError().GetCode() != pb.Error_CODE_WRONG_TABLET {
		return
	}
	for _, d := range r.Error.Descriptors {
		w.router.Update(d)
	}
	if d := w.router.Descriptor(w.d.GetTabletId()); d == nil || d.Epoch <= w.req.GetEpoch() {
		w.refresh(ctx)
	}
}

// refresh reads the map anew when the replicas that are known do not serve the tablet: it
// may have been moved. Meta's own place is not found that way.
func (w *wander) refresh(ctx context.Context) {
	if w.d.GetTabletId() == MetaTablet || w.peers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	_ = w.router.Refresh(ctx) // the caller tries again anyway
}

// refreshPatience is how long an operation waits for the map: meta may be away itself.
const refreshPatience = 250 * time.Millisecond
