package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file carries one operation to the replica that does it. Each call runs on its
// caller's goroutine, with one question under way at a time, and keeps where it has been
// in a forward of its own; what it learns goes into the Router, which all calls share. A
// question that was given up may still be answered by a node, and be done there: only
// operations that may be repeated are sent on after that.

// Caller asks other nodes. *peer.Peers implements it.
type Caller interface {
	// Call waits for the answer. An error wraps txn.ErrNotSent if the question was surely not sent.
	Call(ctx context.Context, node uint64, req *wire.PeerRequest) (*wire.PeerResponse, error)
	// Tell is Call without waiting; then is called once, on any goroutine.
	Tell(node uint64, deadline time.Time, req *wire.PeerRequest,
		then func(*wire.PeerResponse, error))
}

// Carrier carries operations to tablets, whichever node leads them. It has no state but
// its references, and any number of goroutines may use it.
//
// It never sends a mutation again after an attempt whose outcome is unknown. Whether that
// is safe only the caller knows (package txn; Meta's conditional writes).
type Carrier struct {
	router  *Router
	self    uint64
	peers   Caller          // nil: there are no other nodes
	members cluster.Members // nil: likewise
}

// NewCarrier returns a carrier for the node. peers and members are nil on a node that is alone.
func NewCarrier(router *Router, self uint64, peers Caller, members cluster.Members) *Carrier {
	return &Carrier{router: router, self: self, peers: peers, members: members}
}

// overloadedRetry is when an operation that a full queue has refused may come again.
const overloadedRetry = 5 * time.Millisecond

// attemptTimeout bounds one question to another node. Gossip notices a dead node sooner,
// and its questions fail at once then; this bound is for what gossip does not see: a path
// that is cut in one direction, an answer that was lost.
const attemptTimeout = 3 * time.Second

// Send carries one operation to the tablet's leader: at once where this node's replica
// leads, else to the node that is believed to lead, and then to the others, each once.
// The answer of a replica that does not lead says where to go on. An error means that
// there was no answer: the outcome is unknown, unless it wraps txn.ErrNotSent.
func (c *Carrier) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	at := c.router.route(d.GetTabletId())
	// No replica is here, or another node is believed to lead.
	if at.port == nil || (at.leader != 0 && at.leader != c.self) {
		return c.around(ctx, d, req)
	}
	r, err := AskPort(ctx, at.port, d.GetTabletId(), req)
	if err == nil && !elsewhere(r) {
		return r, nil
	}
	// This node's replica may still do it, so it goes nowhere else unless it may be done
	// twice.
	if err != nil && (ctx.Err() != nil || !wire.OperationOf(req).Has(wire.Repeats)) {
		return nil, err
	}
	// This replica has been asked; its answer may say who leads.
	f := &forward{Carrier: c, d: d, req: req, tried: []uint64{c.self}}
	f.learn(c.self, r)
	return f.on(ctx)
}

// AskPort has one of this node's replicas do the operation. A full queue is an answer,
// not an error.
func AskPort(ctx context.Context, port *TabletPort, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	r, err := port.Ask(ctx, req, wire.OperationOf(req).Has(wire.Finishes))
	if errors.Is(err, actorkit.ErrOverloaded) {
		return Overloaded(port, tablet), nil
	}
	return r, err
}

// AskNode has the replica on another node do the operation, once. The node's refusal is
// given in the form of the tablet's. Without peers nothing is sent.
func (c *Carrier) AskNode(ctx context.Context, node uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if c.peers == nil { // this node is alone
		return nil, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node)
	}
	r, err := c.peers.Call(ctx, node,
		&wire.PeerRequest{Body: &wire.PeerRequest_Tablet{Tablet: req}})
	switch {
	case err != nil:
		return nil, err
	case r.GetError() != nil:
		return &pb.TabletResponse{Error: r.Error}, nil
	case r.GetTablet() == nil:
		return nil, fmt.Errorf("route: node %d answered tablet %d with something else", node,
			req.TabletId)
	}
	return r.GetTablet(), nil
}

// Overloaded is the answer of a replica whose queue is full: the operation was surely not
// done.
func Overloaded(port *TabletPort, tablet uint64) *pb.TabletResponse {
	r := serverError(pb.Error_CODE_OVERLOADED, "tablet %d has %d operations waiting", tablet,
		port.Queued())
	r.Error.RetryAfterMs = uint32(overloadedRetry.Milliseconds())
	return r
}

func serverError(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// Elsewhere returns a node's answer about a tablet that it has no replica of: NOT_LEADER,
// with what it knows of where to ask.
func (r *Router) Elsewhere(id uint64) *pb.TabletResponse {
	at := r.route(id)
	out := serverError(pb.Error_CODE_NOT_LEADER, "tablet %d is not on this node", id)
	out.Error.LeaderNode = at.leader
	if at.descriptor != nil {
		out.Error.Descriptors = []*pb.TabletDescriptor{at.descriptor}
	}
	return out
}

// around sends the operation from node to node, without trying this node's replica first.
func (c *Carrier) around(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	return (&forward{Carrier: c, d: d, req: req}).on(ctx)
}

// forward is one operation's way from node to node until one of them does it. It belongs
// to the goroutine of the call.
type forward struct {
	*Carrier
	d     *pb.TabletDescriptor // as the sender knows it; its replicas may be missing
	req   *pb.TabletRequest
	tried []uint64
	hint  uint64             // who is said to lead, by the last answer
	last  *pb.TabletResponse // the last refusal
	err   error              // why the last node was not reached
	// a node that should have a replica has none, or was not reached: the map may be old
	lost bool
}

// on asks node after node, each once. If it returns a refusal, the operation was surely
// not done by any of them.
func (f *forward) on(ctx context.Context) (*pb.TabletResponse, error) {
	for {
		node := f.next()
		if node == 0 {
			break
		}
		f.tried = append(f.tried, node)
		r, err := f.once(ctx, node)
		switch {
		case err == nil && !elsewhere(r):
			f.router.Led(f.d.GetTabletId(), node)
			f.heal(ctx, r)
			return r, nil
		// It does not lead, or cannot serve: go on where its answer points.
		case err == nil:
			f.learn(node, r)
			continue
		}
		f.router.Unled(f.d.GetTabletId(), node)
		if ctx.Err() != nil || (!errors.Is(err, txn.ErrNotSent) &&
			!wire.OperationOf(f.req).Has(wire.Repeats)) {
			return nil, err
		}
		// It was not sent, or may be done twice: the next node is asked.
		f.err, f.lost = err, true
	}
	// The replicas that are known may not be those that there are; the caller's next
	// attempt finds the new ones.
	if f.lost || f.last == nil {
		f.refresh(ctx)
	}
	switch {
	case f.last != nil:
		return f.last, nil
	case f.err != nil:
		return serverError(pb.Error_CODE_UNAVAILABLE,
			"no node with a replica of tablet %d was reached: %v", f.d.GetTabletId(), f.err), nil
	}
	return serverError(pb.Error_CODE_UNAVAILABLE, "no replica of tablet %d is known",
		f.d.GetTabletId()), nil
}

// next returns the node to ask: the last answer's hint, the believed leader, then each
// replica. 0 if all that may know have been asked.
func (f *forward) next() uint64 {
	untried := func(node uint64) bool { return node != 0 && !slices.Contains(f.tried, node) }
	at := f.router.route(f.d.GetTabletId())
	for _, hint := range []uint64{f.hint, at.leader} {
		if untried(hint) {
			return hint
		}
	}
	known := at.descriptor
	// The sender may know the tablet from a newer map than this node's.
	if known == nil || known.Epoch < f.d.GetEpoch() && len(f.d.GetReplicas()) > 0 {
		known = f.d
	}
	for _, learners := range []bool{false, true} { // a learner does not lead, but knows who does
		for _, r := range known.GetReplicas() {
			if r.Learner == learners && untried(r.NodeId) {
				return r.NodeId
			}
		}
	}
	if f.d.GetTabletId() != cluster.MetaTablet || f.members == nil {
		return 0
	}
	return f.askAround(untried)
}

// askAround returns a member to ask for meta, whose place no map tells: first the one
// that says it leads meta in the highest term.
func (f *forward) askAround(untried func(uint64) bool) uint64 {
	var best cluster.Member
	for _, m := range f.members.Alive() {
		if untried(m.NodeID) && (best.NodeID == 0 || m.LeadsMeta > best.LeadsMeta) {
			best = m
		}
	}
	return best.NodeID
}

// once asks one node.
func (f *forward) once(ctx context.Context, node uint64) (*pb.TabletResponse, error) {
	id := f.d.GetTabletId()
	// A forward may come back here: this node's replica may have become the leader.
	if node == f.self {
		port := f.router.Port(id)
		if port == nil {
			return f.router.Elsewhere(id), nil
		}
		return AskPort(ctx, port, id, f.req)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req := f.req
	// The request may be shared with other attempts: a copy gets this tablet's id.
	if req.TabletId != id {
		req = &pb.TabletRequest{
			TabletId: id, Epoch: req.Epoch, DeadlineMs: req.DeadlineMs,
			MaxAnswerBytes: req.MaxAnswerBytes, Op: req.Op,
		}
	}
	return f.AskNode(ctx, node, req)
}

// learn records a refusal and what it says about where to ask next.
func (f *forward) learn(node uint64, r *pb.TabletResponse) {
	if r == nil {
		return
	}
	id, e := f.d.GetTabletId(), r.GetError()
	for _, d := range e.GetDescriptors() {
		f.router.Update(d)
	}
	f.lost = f.lost || len(e.GetDescriptors()) > 0 || e.GetCode() == pb.Error_CODE_UNAVAILABLE
	f.last, f.hint = r, e.GetLeaderNode()
	// A status of a replica that does not lead counts as a refusal with a hint.
	if s := r.GetStatus(); s != nil {
		f.hint = s.GetLeaderNode()
		f.last = serverError(pb.Error_CODE_NOT_LEADER, "tablet %d: no leader is known", id)
	}
	// It names another node, else all that is known is that this one does not lead.
	if f.hint != 0 && f.hint != node {
		f.router.Led(id, f.hint)
		return
	}
	f.router.Unled(id, node)
}

// elsewhere reports whether the answer is of a replica that surely has not done the
// operation while another may do it.
func elsewhere(r *pb.TabletResponse) bool {
	switch r.GetError().GetCode() {
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_UNAVAILABLE:
		return true
	}
	s := r.GetStatus()
	// any replica answers that one; its leader's is the one that is meant
	return s != nil && !s.GetLeader()
}

// heal takes what a WRONG_TABLET answer says of ranges into the map. If it says nothing
// newer, the map is read from meta: what the sender believes came from here.
func (f *forward) heal(ctx context.Context, r *pb.TabletResponse) {
	if r.GetError().GetCode() != pb.Error_CODE_WRONG_TABLET {
		return
	}
	for _, d := range r.Error.Descriptors {
		f.router.Update(d)
	}
	if d := f.router.Descriptor(f.d.GetTabletId()); d == nil || d.Epoch <= f.req.GetEpoch() {
		f.refresh(ctx)
	}
}

// refresh reads the map anew when the known replicas do not serve the tablet, which may
// have been moved. Meta itself is not found that way.
func (f *forward) refresh(ctx context.Context) {
	if f.d.GetTabletId() == cluster.MetaTablet || f.peers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	_ = f.router.Refresh(ctx) // the caller tries again anyway
}

// refreshPatience bounds how long an operation waits for the map: meta may be away
// itself.
const refreshPatience = 250 * time.Millisecond
