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

// Caller asks another node: *peer.Peers.
type Caller interface {
	// Call waits for the answer. An error wraps txn.ErrNotSent if the question was surely not sent.
	Call(ctx context.Context, node uint64, req *wire.PeerRequest) (*wire.PeerResponse, error)
	// Tell is Call without waiting; then is called once, on any goroutine.
	Tell(node uint64, deadline time.Time, req *wire.PeerRequest,
		then func(*wire.PeerResponse, error))
}

// Carrier carries operations to tablets, whichever node leads them. It may be used by any
// number of goroutines.
//
// It never sends a mutation again by itself after one of which it is not known whether it
// was done: who may, knows the operation (package txn; Meta's conditional writes).
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
func (c *Carrier) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
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
	f := &forward{Carrier: c, d: d, req: req, tried: []uint64{c.self}}
	f.learn(c.self, r)
	return f.on(ctx)
}

// AskPort has one of this node's replicas do the operation. A full queue is an answer.
func AskPort(ctx context.Context, port *TabletPort, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	r, err := port.Ask(ctx, req, wire.OperationOf(req).Has(wire.Finishes))
	if errors.Is(err, actorkit.ErrOverloaded) {
		return Overloaded(port, tablet), nil
	}
	return r, err
}

// Overloaded is the answer of a replica whose queue is full. Surely not done.
func Overloaded(port *TabletPort, tablet uint64) *pb.TabletResponse {
	r := serverError(pb.Error_CODE_OVERLOADED, "tablet %d has %d operations waiting", tablet,
		port.Queued())
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

func (c *Carrier) around(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	return (&forward{Carrier: c, d: d, req: req}).on(ctx)
}

// forward is one operation's way from node to node until one of them does it.
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

// on asks node after node. What it returns if none of them leads was surely not done.
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
		case err == nil:
			f.learn(node, r)
			continue
		}
		f.router.Unled(f.d.GetTabletId(), node)
		if ctx.Err() != nil || (!errors.Is(err, txn.ErrNotSent) &&
			!wire.OperationOf(f.req).Has(wire.Repeats)) {
			return nil, err
		}
		f.err, f.lost = err, true
	}
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

// next is the node to ask; 0 if all have been asked that may know.
func (f *forward) next() uint64 {
	untried := func(node uint64) bool { return node != 0 && !slices.Contains(f.tried, node) }
	at := f.router.route(f.d.GetTabletId())
	for _, hint := range []uint64{f.hint, at.leader} {
		if untried(hint) {
			return hint
		}
	}
	known := at.descriptor
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

// askAround finds a member to ask for meta, which no map tells the place of: first who
// says that it leads it.
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
	if node == f.self {
		port := f.router.Port(id)
		if port == nil {
			return f.router.Elsewhere(id), nil
		}
		return AskPort(ctx, port, id, f.req)
	}
	if f.peers == nil {
		return nil, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req := f.req
	if req.TabletId != id {
		req = &pb.TabletRequest{
			TabletId: id, Epoch: req.Epoch, DeadlineMs: req.DeadlineMs,
			MaxAnswerBytes: req.MaxAnswerBytes, Op: req.Op,
		}
	}
	r, err := f.peers.Call(ctx, node, &wire.PeerRequest{
		Body: &wire.PeerRequest_Tablet{Tablet: req},
	})
	switch {
	case err != nil:
		return nil, err
	case r.GetError() != nil:
		return &pb.TabletResponse{Error: r.Error}, nil
	case r.GetTablet() == nil:
		return nil, fmt.Errorf("route: node %d answered tablet %d with something else", node, id)
	}
	return r.GetTablet(), nil
}

// learn takes note of a refusal and of what it says about where to ask.
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
	if s := r.GetStatus(); s != nil {
		f.hint = s.GetLeaderNode()
		f.last = serverError(pb.Error_CODE_NOT_LEADER, "tablet %d: no leader is known", id)
	}
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

// heal takes what an answer says of the tablet's range into the map. Where it says
// nothing new, meta is asked: what the sender believes came from here.
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

// refresh reads the map anew when the replicas that are known do not serve the tablet: it
// may have been moved. Meta's own place is not found that way.
func (f *forward) refresh(ctx context.Context) {
	if f.d.GetTabletId() == cluster.MetaTablet || f.peers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	_ = f.router.Refresh(ctx) // the caller tries again anyway
}

// refreshPatience is how long an operation waits for the map: meta may be away itself.
const refreshPatience = 250 * time.Millisecond
