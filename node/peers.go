package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/hosting"
)

// Communication with other nodes: membership (gossip), the link (remoting), and the handler of
// their requests. Open's goroutine calls openPeers once; gossip's goroutines call onMember, and
// those that read from connections call peerHandler. Any number of requests may be in flight;
// each part that answers them bounds its queue.

// openPeers opens membership and the link to other nodes, and creates the carriers of operations
// to tablets and to the oracle. On a single node they carry everything to itself.
func (n *Node) openPeers() error {
	open := n.parts.Members
	if open == nil {
		open = func(self cluster.Member) (cluster.Members, error) {
			return n.joining.openGossip(self, func(by cluster.Member) {
				// A later process runs with this node's identity, so this one must end.
				n.fail(fmt.Errorf("%w: incarnation %d runs at %s", cluster.ErrStaleIncarnation,
					by.Incarnation, by.Listen))
			})
		}
	}
	// Membership comes first: the link looks up addresses there, and it reports to peers which
	// processes have ended.
	members, err := open(n.joining.member(n.identity))
	if err != nil {
		return fmt.Errorf("node: open gossip: %w", err)
	}
	if d := n.joining.self.Contacts().Meta; d != nil {
		n.router.Update(d) // the last version that this node received
	}
	// Without an address for peers, and without a replaced part, the node is alone.
	link := n.parts.Link
	if link == nil && n.joining.peerAddr() != "" {
		link = func(peer.Self) (peer.Link, error) { return n.openRemoting(members) }
	}
	var (
		caller route.Caller
		nodes  cluster.PeerLink // nil: no link
		others = members        // members to which the carrier may send
	)
	if link != nil {
		if err := n.openLink(link); err != nil {
			return err
		}
		n.joining.membership.ReachedBy(n.peers.Reached)
		caller, nodes = n.peers, n.peers
	} else {
		others = nil // without a link the carrier reaches no other node
	}
	n.peerNodes.Connect(members, nodes)
	// All operations, local ones too, pass through the carrier and the oracles: the carrier looks
	// up the leader of a tablet, the oracles that of meta.
	n.carrier = route.NewCarrier(n.router, n.identity.NodeID, caller, others, n.gate)
	n.oracles = route.NewOracles(n.carrier, n.oracle.port, n.oracle.now)
	n.meta = meta.New(n.carrier.Sender(), n.router, n.carrier.AskReplica)
	n.router.ReadFrom(n.meta.Tablets.Tablets)
	n.policy.Follow(n.meta.Policy, n.gate, n.woken.Wake)
	// The handler refuses requests until peersOpen is closed. Watch the members last: onMember
	// uses the router and the peers.
	if n.peers != nil {
		close(n.peersOpen)
		n.unwatch = members.Watch(n.tablets.onMember)
	}
	return nil
}

// openLink opens the link to other nodes and the peers over it. From then on the handler answers
// other nodes.
func (n *Node) openLink(link func(peer.Self) (peer.Link, error)) error {
	// Every batch contains self: other nodes refuse batches of another cluster or of an ended
	// process.
	self := peer.Self{
		ClusterID: n.identity.ClusterID, NodeID: n.identity.NodeID,
		Incarnation: n.identity.Incarnation,
	}
	way, err := link(self)
	if err != nil {
		return fmt.Errorf("node: open the link to other nodes: %w", err)
	}
	h := &peerHandler{
		self: n.identity, now: n.now, router: n.router, tablets: n.tablets, oracle: n.oracle,
		survey: n.survey, liveness: n.liveness, lockd: &n.lockd, clients: &n.clients, hosting: &n.hosting, waiting: n.requests,
		opened: n.peersOpen,
	}
	n.peers = peer.New(way, self, h, peer.Config{
		System: n.system, Gate: n.gate, Reached: n.joining.self.Reached, Logger: n.cfg.Logger,
	})
	return nil
}

// openRemoting opens the default link to other nodes, which looks up their addresses in members.
// A node that gossip reports dead has no address.
func (n *Node) openRemoting(members cluster.Members) (peer.Link, error) {
	l, err := remoting.Open(remoting.Config{
		Listen: n.joining.peerAddr(), Files: n.joining.files, Logger: n.cfg.Logger,
		Resolve: func(node uint64) (string, bool) {
			m, alive := members.Member(node)
			return m.Peer, alive && m.Peer != ""
		},
	})
	if err != nil {
		return nil, err
	}
	n.remote = l
	return l, nil
}

// member returns this node's initial gossip metadata.
func (e *joining) member(self join.Identity) cluster.Member {
	return cluster.Member{
		NodeID: self.NodeID, Incarnation: self.Incarnation, Zone: e.cfg.Labels["zone"],
		Versions: e.gate.Build(),
		Listen:   e.at.Listen, Peer: e.at.Peer, Gossip: e.at.Gossip, HTTP: e.at.Http,
	}
}

// onMember is called by gossip for every node that joins, changes or leaves. It must not block:
// it wakes the worker of changes, by moved, for anything that waits.
func (t *tablets) onMember(e cluster.MemberEvent) {
	id := e.Member.NodeID
	if id == t.node {
		return
	}
	// Only a node with a link watches members. An event concerns one incarnation and may be late,
	// but gossip orders the events of a node by incarnation.
	t.peerNodes.NoteEvent(e)
	if e.Alive {
		t.ticker.Alive(id)
		// Gossip may be stale: use it only while this node knows no leader.
		if e.Member.LeadsMeta != 0 && t.router.Leader(cluster.MetaTablet) == 0 {
			t.router.HintLeader(cluster.MetaTablet, id)
		}
	} else {
		// NoteEvent has failed the pending requests to the node, so their callers do not wait;
		// suspecting the node starts elections before the election timeout.
		t.router.ForgetNode(id)
		t.ticker.Suspect(id)
	}
	t.moved()
}

// peerHandler answers other nodes. It owns no state. The goroutines that read from other nodes call
// it, and it never blocks: it passes requests to actors, which answer on their own goroutines, and
// the few that must wait to the request queue. If a queue is full it refuses the request at once as
// overloaded.
type peerHandler struct {
	self    join.Identity
	now     func() time.Time
	router  *route.Router
	tablets *tablets
	oracle  *localOracle
	survey  *scanner.ClusterSurvey
	// liveness has this node's promises to others.
	liveness *liveness.Node
	lockd    *atomic.Pointer[lockd.Lockd]
	clients  *rpc.Clients
	hosting  *atomic.Pointer[hosting.Host] // nil until the node has one
	waiting  requestQueue
	opened   <-chan struct{} // closed when the node's carrier exists
}

var _ peer.Handler = (*peerHandler)(nil)

// Raft implements peer.Handler. It also accepts messages while the node starts: replicas drop those
// that they cannot use yet.
func (h *peerHandler) Raft(m *wire.RaftMessage) { h.tablets.replicas.Deliver(m) }

// Request implements peer.Handler. reply is called once, perhaps before Request returns, or never
// for a request that is queued while the node stops.
func (h *peerHandler) Request(from uint64, deadline time.Time, req *wire.PeerRequest,
	reply func(*wire.PeerResponse)) {
	select {
	case <-h.opened:
	default:
		reply(refused(pb.Error_CODE_UNAVAILABLE, "node %d is starting", h.self.NodeID))
		return
	}
	switch body := req.Body.(type) {
	case *wire.PeerRequest_Status:
		// Answered here and not from a queue: the answer contains this node's time, by which
		// clocks are compared.
		if body.Status.GetBrief() {
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Status{Status: &pb.NodeStatusResponse{
				ClusterId: h.self.ClusterID, NodeId: h.self.NodeID, Incarnation: h.self.Incarnation,
				UnixMs: h.now().UnixMilli(),
			}}})
			return
		}
		if body.Status.GetClients() {
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Status{Status: &pb.NodeStatusResponse{
				NodeId: h.self.NodeID, Incarnation: h.self.Incarnation, Clients: h.clients.List(h.self.NodeID),
			}}})
			return
		}
		// The full status needs answers of replicas and of meta.
		h.waiting.add(deadline, req, reply)
	// The next three are nearly all requests: each goes directly to the mailbox of an actor, which
	// calls reply on its own goroutine.
	case *wire.PeerRequest_Tablet:
		h.tablet(deadline, body.Tablet, reply)
	case *wire.PeerRequest_Timestamps:
		h.timestamps(deadline, body.Timestamps, reply)
	case *wire.PeerRequest_Lockd:
		h.locks(deadline, body.Lockd, reply)
	// The replica set stages the piece on its own worker, and answers when that is done.
	case *wire.PeerRequest_Snapshot:
		h.tablets.replicas.Chunk(body.Snapshot, func(a *wire.SnapshotAnswer) {
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Snapshot{Snapshot: a}})
		})
	// One reads the catalogue from meta, the other may query replicas: both wait.
	case *wire.PeerRequest_Honour, *wire.PeerRequest_Recent:
		h.waiting.add(deadline, req, reply)
	case *wire.PeerRequest_Disconnect:
		closed := h.clients.Disconnect(context.Background(), body.Disconnect.GetIdentity(),
			body.Disconnect.GetId())
		reply(&wire.PeerResponse{Body: &wire.PeerResponse_Disconnect{
			Disconnect: &pb.DisconnectClientResponse{Closed: closed},
		}})
	case *wire.PeerRequest_Outside:
		if host := h.hosting.Load(); host != nil {
			host.HearRefused(body.Outside)
		}
		reply(&wire.PeerResponse{})
	case *wire.PeerRequest_Support:
		reply(&wire.PeerResponse{
			Body: &wire.PeerResponse_Support{Support: h.liveness.Answer(from, body.Support)},
		})
	case *wire.PeerRequest_Survey:
		// The survey answers from memory.
		reply(&wire.PeerResponse{
			Body: &wire.PeerResponse_Survey{Survey: h.survey.Answer(body.Survey)},
		})
	default: // from a node that runs a later version
		reply(refused(pb.Error_CODE_INVALID, "unknown request"))
	}
}

// refused returns an answer with an error.
func refused(code pb.Error_Code, format string, args ...any) *wire.PeerResponse {
	return &wire.PeerResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// tablet passes an operation to this node's replica. It refuses an operation only if that was
// certainly not executed; after any other failure it answers that the outcome is unknown.
func (h *peerHandler) tablet(deadline time.Time, req *pb.TabletRequest,
	reply func(*wire.PeerResponse)) {
	answer := func(r *pb.TabletResponse) {
		reply(&wire.PeerResponse{Body: &wire.PeerResponse_Tablet{Tablet: r}})
	}
	port := h.router.Port(req.GetTabletId())
	// The sender's map is out of date; the answer contains this node's descriptor and leader.
	if port == nil {
		answer(h.router.Elsewhere(req.GetTabletId()))
		return
	}
	// The tablet drops operations whose deadline has passed, unexecuted. The deadline was sent as a
	// duration, so the two nodes' clocks need not agree. Operations that finish a transaction, or
	// keep it alive, bypass the queue's limit.
	err := port.Tell(req, deadline, wire.OperationOf(req).Has(wire.Finishes),
		func(r actorkit.Result[*pb.TabletResponse]) {
			if r.Err != nil {
				reply(refused(pb.Error_CODE_UNKNOWN, "tablet %d: %v", req.GetTabletId(), r.Err))
				return
			}
			answer(r.Value)
		})
	if err != nil { // the queue is full
		answer(route.Overloaded(port, req.GetTabletId()))
	}
}

// timestamps passes a request to this node's oracle, which answers only on meta's leader. The
// request bypasses the queue limit, because it combines those of all callers of a node. No failure
// is reported as UNKNOWN, because lost timestamps are harmless.
func (h *peerHandler) timestamps(deadline time.Time, req *pb.TimestampsRequest,
	reply func(*wire.PeerResponse)) {
	away := func(leader uint64) {
		r := refused(pb.Error_CODE_NOT_LEADER, "node %d does not lead meta", h.self.NodeID)
		r.Error.LeaderNode = leader
		reply(r)
	}
	port := h.oracle.port()
	if port == nil {
		away(0)
		return
	}
	err := port.Tell(req, deadline, true, func(r actorkit.Result[*pb.TimestampsResponse]) {
		var elsewhere *route.NotLeader
		switch {
		case errors.As(r.Err, &elsewhere):
			away(elsewhere.Leader)
		case errors.Is(r.Err, actorkit.ErrOverloaded):
			reply(refused(pb.Error_CODE_OVERLOADED, "oracle of node %d: %v", h.self.NodeID, r.Err))
		case r.Err != nil:
			reply(refused(pb.Error_CODE_UNAVAILABLE, "oracle of node %d: %v", h.self.NodeID, r.Err))
		default:
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Timestamps{Timestamps: r.Value}})
		}
	})
	if err != nil {
		reply(refused(pb.Error_CODE_OVERLOADED, "oracle of node %d: %v", h.self.NodeID, err))
	}
}

// locks passes a request to this node's lock service. A request that only unlocks bypasses the
// queue limit: if it were refused, the locks would last until their leases end.
func (h *peerHandler) locks(deadline time.Time, req *wire.LockdRequest,
	reply func(*wire.PeerResponse)) {
	l := h.lockd.Load()
	if l == nil {
		reply(refused(pb.Error_CODE_UNAVAILABLE, "the lock service of node %d is not running", h.self.NodeID))
		return
	}
	// Callers either acquire locks or release them, never both.
	release := len(req.GetTry()) == 0
	err := l.Port().Tell(req, deadline, release, func(r actorkit.Result[*wire.LockdResponse]) {
		if r.Err != nil {
			reply(refused(pb.Error_CODE_UNAVAILABLE, "lock service of node %d: %v", h.self.NodeID, r.Err))
			return
		}
		reply(&wire.PeerResponse{Body: &wire.PeerResponse_Lockd{Lockd: r.Value}})
	})
	if err != nil {
		reply(refused(pb.Error_CODE_OVERLOADED, "lock service of node %d: %v", h.self.NodeID, err))
	}
}
