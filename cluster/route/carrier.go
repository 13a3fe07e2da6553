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
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Delivery of one operation to the replica that leads its tablet. Each call runs on its caller's
// goroutine and contacts one node at a time. Its forward records the contacted nodes; what the
// responses contain goes into the Router, which all calls share. A node may still execute an
// operation after the wait for its response has ended, so only repeatable operations are then
// sent to another node.

// Caller asks other nodes. *peer.Peers implements it.
type Caller interface {
	// Call waits for the answer. Its error wraps txn.ErrNotSent if the request was surely
	// not sent.
	Call(ctx context.Context, node uint64, req *wire.PeerRequest) (*wire.PeerResponse, error)
}

// Carrier sends operations to the leaders of tablets. It has no state of its own and is safe for
// concurrent use.
//
// After an attempt whose outcome is unknown it sends only operations with wire.Repeats again. For
// any other mutation only the caller knows whether that is safe (package txn, the conditional
// writes of package meta).
type Carrier struct {
	router  *Router
	self    uint64
	peers   Caller          // nil: there are no other nodes
	members cluster.Members // nil: likewise
	gate    *version.Gate
}

// NewCarrier returns a Carrier for the node self. peers and members are nil on a node that
// is alone.
func NewCarrier(router *Router, self uint64, peers Caller, members cluster.Members,
	gate *version.Gate) *Carrier {
	return &Carrier{router: router, self: self, peers: peers, members: members, gate: gate}
}

// overloadedRetry is the time after which a caller may retry what a full queue has rejected.
const overloadedRetry = 5 * time.Millisecond

// attemptTimeout limits one request to another node. When gossip notices a dead node,
// requests to it fail sooner. The limit is for what gossip does not see, such as a path
// that is cut in one direction.
const attemptTimeout = 3 * time.Second

// Send sends one operation to the tablet's leader. It first tries the believed leader, which may be
// this node's replica, and then the other replicas, each once; a replica that does not lead names
// the next one. An error means that no answer arrived. The outcome is then unknown unless the error
// wraps txn.ErrNotSent.
func (c *Carrier) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	// Every node that leads the tablet, now or during the call, must support the operation: an
	// earlier build ignores an unknown field.
	if err := c.gate.Check(wire.FeatureOf(req)); err != nil {
		return serverError(pb.Error_CODE_INVALID, "%v", err), nil
	}
	if now := c.router.mergedInto(d.GetTabletId()); now != nil {
		return isMerged(d.GetTabletId(), now), nil
	}
	at := c.router.route(d.GetTabletId())
	// No replica is here, or another node is believed to lead.
	if at.port == nil || (at.leader != 0 && at.leader != c.self) {
		return (&forward{Carrier: c, d: d, req: req}).run(ctx)
	}
	r, err := AskPort(ctx, at.port, d.GetTabletId(), req)
	if err == nil && !mayTryAnother(r) {
		return r, nil
	}
	// This node's replica may still execute the operation. Another replica is contacted only if the
	// operation may be executed twice.
	if err != nil && (ctx.Err() != nil || !wire.OperationOf(req).Has(wire.Repeats)) {
		return nil, err
	}
	// The own replica counts as contacted; its response may name the leader.
	f := &forward{Carrier: c, d: d, req: req, tried: []uint64{c.self}}
	f.learn(c.self, r)
	return f.run(ctx)
}

// AskPort asks one of this node's replicas to do the operation. If its queue is full, the
// answer is Overloaded and the error is nil.
func AskPort(ctx context.Context, port *TabletPort, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	r, err := port.Ask(ctx, req, wire.OperationOf(req).Has(wire.Finishes))
	if errors.Is(err, actorkit.ErrOverloaded) {
		return Overloaded(port, tablet), nil
	}
	return r, err
}

// AskNode sends the operation to the replica on another node, once. A rejection by the node is
// returned like one by the tablet. On a single node nothing is sent: the error wraps
// txn.ErrNotSent.
func (c *Carrier) AskNode(ctx context.Context, node uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if c.peers == nil {
		return nil, fmt.Errorf("%w: node %d: this node runs alone", txn.ErrNotSent, node)
	}
	r, err := c.peers.Call(ctx, node,
		&wire.PeerRequest{Body: &wire.PeerRequest_Tablet{Tablet: req}})
	switch {
	case err != nil:
		return nil, err
	case r.GetError() != nil:
		return &pb.TabletResponse{Error: r.Error}, nil
	case r.GetTablet() == nil:
		return nil, fmt.Errorf("route: node %d sent no tablet response for tablet %d", node,
			req.TabletId)
	}
	return r.GetTablet(), nil
}

// AskReplica asks one node's replica of a tablet, whether or not it leads. No other node is
// tried, and nothing is repeated.
func (c *Carrier) AskReplica(ctx context.Context, node uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if node != c.self {
		return c.AskNode(ctx, node, req)
	}
	port := c.router.Port(req.TabletId)
	if port == nil {
		return nil, errors.New("route: this node has no replica of the tablet")
	}
	return AskPort(ctx, port, req.TabletId, req)
}

// Overloaded returns the answer of a replica whose queue is full. The operation was surely
// not done.
func Overloaded(port *TabletPort, tablet uint64) *pb.TabletResponse {
	r := serverError(pb.Error_CODE_OVERLOADED, "tablet %d has %d operations waiting", tablet,
		port.Queued())
	r.Error.RetryAfterMs = uint32(overloadedRetry.Milliseconds())
	return r
}

func serverError(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// Elsewhere returns the response of a node without a replica of the tablet: NOT_LEADER with the
// leader and the descriptor, if known, or WRONG_TABLET if the tablet was merged into another one.
func (r *Router) Elsewhere(id uint64) *pb.TabletResponse {
	if now := r.mergedInto(id); now != nil {
		return isMerged(id, now)
	}
	at := r.route(id)
	out := serverError(pb.Error_CODE_NOT_LEADER, "tablet %d is not on this node", id)
	out.Error.LeaderNode = at.leader
	if at.descriptor != nil {
		out.Error.Descriptors = []*pb.TabletDescriptor{at.descriptor}
	}
	return out
}

// isMerged returns the response that the tablet no longer exists, with the one that now holds its
// start.
func isMerged(id uint64, now *pb.TabletDescriptor) *pb.TabletResponse {
	out := serverError(pb.Error_CODE_WRONG_TABLET, "tablet %d was merged into tablet %d", id, now.TabletId)
	out.Error.Descriptors = []*pb.TabletDescriptor{now}
	return out
}

// forward sends one operation to one node after another until one executes it. It belongs to the
// goroutine of the call.
type forward struct {
	*Carrier
	d     *pb.TabletDescriptor // as the sender knows it; may lack the replicas
	req   *pb.TabletRequest
	tried []uint64           // the nodes that were asked
	hint  uint64             // the leader named by the last answer
	last  *pb.TabletResponse // the last refusal
	err   error              // error of reaching the last node
	// mapStale is set when a node that should have a replica has none, cannot serve, or was not
	// reached.
	mapStale bool
}

// run asks one node after another, each once. If it returns a refusal, none of them has done the
// operation, except perhaps an operation that may be repeated (wire.Repeats), if an answer was
// lost.
func (f *forward) run(ctx context.Context) (*pb.TabletResponse, error) {
	for {
		node := f.next()
		if node == 0 {
			break
		}
		f.tried = append(f.tried, node)
		r, err := f.askOnce(ctx, node)
		switch {
		case err == nil && !mayTryAnother(r):
			f.router.HintLeader(f.d.GetTabletId(), node)
			f.updateRanges(ctx, r)
			return r, nil
		// The replica does not lead or cannot serve: its response may name the next node.
		case err == nil:
			f.learn(node, r)
			continue
		}
		f.router.ForgetLeader(f.d.GetTabletId(), node)
		if ctx.Err() != nil || (!errors.Is(err, txn.ErrNotSent) &&
			!wire.OperationOf(f.req).Has(wire.Repeats)) {
			return nil, err
		}
		// The request was not sent, or may be done twice: the next node is asked.
		f.err, f.mapStale = err, true
	}
	// The tablet may have other replicas than in the map. The caller's next attempt uses a
	// refreshed map.
	if f.mapStale || f.last == nil {
		id := f.d.GetTabletId()
		if f.refresh(ctx) && id != cluster.MetaTablet && f.router.Descriptor(id) == nil {
			if now := f.router.mergedInto(id); now != nil {
				return isMerged(id, now), nil
			}
			return serverError(pb.Error_CODE_WRONG_TABLET, "there is no tablet %d any more", id), nil
		}
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

// next returns the next node to ask: the leader by the last answer, the believed leader,
// then each replica, and for the meta tablet each other member. It returns 0 if all have been
// asked.
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
	// Learners come last: they do not lead, but know who does.
	for _, learners := range []bool{false, true} {
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

// askAround returns a member to ask for the meta tablet, which no map locates. The member
// that claims to lead meta in the highest term comes first.
func (f *forward) askAround(untried func(uint64) bool) uint64 {
	var best cluster.Member
	for _, m := range f.members.Alive() {
		if untried(m.NodeID) && (best.NodeID == 0 || m.LeadsMeta > best.LeadsMeta) {
			best = m
		}
	}
	return best.NodeID
}

// askOnce asks one node.
func (f *forward) askOnce(ctx context.Context, node uint64) (*pb.TabletResponse, error) {
	id := f.d.GetTabletId()
	// The answer of another node may name this one as the leader.
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
	// Other attempts may share the request, so the tablet's id is set in a copy.
	if req.TabletId != id {
		req = &pb.TabletRequest{
			TabletId: id, Epoch: req.Epoch, DeadlineMs: req.DeadlineMs,
			MaxAnswerBytes: req.MaxAnswerBytes, Op: req.Op, Trace: req.Trace,
		}
	}
	return f.AskNode(ctx, node, req)
}

// learn records a rejection, and in the map its leader and ranges.
func (f *forward) learn(node uint64, r *pb.TabletResponse) {
	if r == nil {
		return
	}
	id, e := f.d.GetTabletId(), r.GetError()
	for _, d := range e.GetDescriptors() {
		f.router.Update(d)
	}
	f.mapStale = f.mapStale || len(e.GetDescriptors()) > 0 ||
		e.GetCode() == pb.Error_CODE_UNAVAILABLE
	f.last, f.hint = r, e.GetLeaderNode()
	// A status of a replica that does not lead counts as a refusal with a hint.
	if s := r.GetStatus(); s != nil {
		f.hint = s.GetLeaderNode()
		f.last = serverError(pb.Error_CODE_NOT_LEADER, "tablet %d: no leader is known", id)
	}
	f.follow(node, f.hint)
}

// follow records the leader named by node, which does not lead. If leader is 0 or node itself, it
// only removes the hint that node leads.
func (f *forward) follow(node, leader uint64) {
	f.hint = leader
	if leader != 0 && leader != node {
		f.router.HintLeader(f.d.GetTabletId(), leader)
		return
	}
	f.router.ForgetLeader(f.d.GetTabletId(), node)
}

// mayTryAnother reports whether the replica that answered has surely not done the
// operation and another replica may do it.
func mayTryAnother(r *pb.TabletResponse) bool {
	switch r.GetError().GetCode() {
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_UNAVAILABLE:
		return true
	}
	s := r.GetStatus()
	// Any replica answers a status request, but the caller wants the leader's status.
	return s != nil && !s.GetLeader()
}

// updateRanges stores the ranges of a WRONG_TABLET answer in the map. If they are not newer
// than the request's, the map is read from meta: the sender has its ranges from this map.
func (f *forward) updateRanges(ctx context.Context, r *pb.TabletResponse) {
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

// refresh reads the map from meta, and reports whether the map is now up to date. On a node that
// is alone it always is. For the meta tablet, which cannot be found that way, refresh does nothing
// and returns false.
func (f *forward) refresh(ctx context.Context) bool {
	switch {
	case f.d.GetTabletId() == cluster.MetaTablet:
		return false
	case f.peers == nil: // this node has all tablets, so its own map is complete
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	return f.router.Refresh(ctx) == nil // the caller tries again in any case
}

// refreshPatience limits an operation's wait for the map, because meta may be unavailable.
const refreshPatience = 250 * time.Millisecond
