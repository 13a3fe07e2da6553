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
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file connects the node to the others: who they are (gossip), the link to them
// (remoting), and the answers to what they ask. Open's goroutine calls openPeers once;
// gossip's goroutines call onMember, and those that read from connections call
// peerHandler. Any number of requests may be in flight; each part that answers them
// bounds its queue.

// openPeers opens the members and the link to them, and makes what carries operations to
// tablets and to the oracle. A node that is alone carries all of them to itself.
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
	// Members come first: the link looks the addresses of other nodes up there, and peers
	// learn from them which processes have ended.
	members, err := open(n.joining.member(n.identity))
	if err != nil {
		return fmt.Errorf("node: members: %w", err)
	}
	if d := n.joining.self.Contacts().Meta; d != nil {
		n.router.Update(d) // as it was when this node last heard of it
	}
	// No address for peers and no part: the node is alone.
	link := n.parts.Link
	if link == nil && n.joining.peerAddr() != "" {
		link = func(peer.Self) (peer.Link, error) { return n.openRemoting(members) }
	}
	var (
		caller route.Caller
		nodes  cluster.PeerLink // an interface without a value stands for no link
		others = members        // that the carrier may ask
	)
	if link != nil {
		if err := n.openLink(link); err != nil {
			return err
		}
		n.joining.membership.ReachedBy(n.peers.Reached)
		caller, nodes = n.peers, n.peers
	} else {
		others = nil // the carrier must not look for nodes that it cannot reach
	}
	n.peerNodes.Connect(members, nodes)
	// All operations go through these, local ones too: the carrier looks up who leads a
	// tablet, and the oracles who leads meta.
	n.carrier = route.NewCarrier(n.router, n.identity.NodeID, caller, others, n.gate)
	n.oracles = route.NewOracles(n.carrier, n.oracle.port, n.oracle.now)
	n.meta = meta.New(n.carrier.Sender(), n.router)
	n.meta.Merges.AskBy(n.carrier.AskReplica)
	n.router.ReadFrom(n.meta.Tablets.Tablets)
	n.policy.Follow(n.meta.Policy, n.gate, n.woken.Wake)
	// Requests that came before this have been refused. Members are watched last, since
	// onMember uses the router and the peers.
	if n.peers != nil {
		close(n.peersOpen)
		n.unwatch = members.Watch(n.tablets.onMember)
	}
	return nil
}

// openLink opens the link to other nodes and the peers over it. The handler answers other
// nodes from then on.
func (n *Node) openLink(link func(peer.Self) (peer.Link, error)) error {
	// self is in every batch: other nodes refuse batches of another cluster or of a process
	// that has ended.
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
		survey: n.survey, lockd: &n.lockd, clients: &n.clients, waiting: n.requests,
		opened: n.peersOpen,
	}
	n.peers = peer.New(way, self, h, peer.Config{
		System: n.system, Gate: n.gate, Reached: n.joining.self.Reached, Logger: n.cfg.Logger,
	})
	return nil
}

// openRemoting opens the usual link to other nodes, which looks their addresses up in
// members. A node that gossip believes dead has no address.
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

// member returns this node as gossip shows it to others.
func (e *joining) member(self join.Identity) cluster.Member {
	return cluster.Member{
		NodeID: self.NodeID, Incarnation: self.Incarnation, Zone: e.cfg.Labels["zone"],
		Versions: e.gate.Build(),
		Listen:   e.at.Listen, Peer: e.at.Peer, Gossip: e.at.Gossip, HTTP: e.at.Http,
	}
}

// onMember is called by gossip for every node that comes, changes or goes. It must not
// block: what takes time is left to the worker of changes, which moved wakes.
func (t *tablets) onMember(e cluster.MemberEvent) {
	id := e.Member.NodeID
	if id == t.node {
		return
	}
	// Only a node that has a link watches the members. An event is news of one incarnation. It
	// may be late: gossip numbers incarnations, so that a node that has died and come back is
	// reported in the right order.
	t.peerNodes.NoteEvent(e)
	if e.Alive {
		t.ticker.Alive(id)
		// Gossip may be old news: it only counts while this node knows of no leader.
		if e.Member.LeadsMeta != 0 && t.router.Leader(cluster.MetaTablet) == 0 {
			t.router.HintLeader(cluster.MetaTablet, id)
		}
	} else {
		// Requests to the node have failed, so that their callers do not wait, and elections
		// begin before the election timeout.
		t.router.ForgetNode(id)
		t.ticker.Suspect(id)
	}
	t.moved()
}

// peerHandler answers other nodes. It owns nothing. The goroutines that read from other
// nodes call it, and nothing here blocks: requests go on to actors, which answer on their
// own goroutines, and the few that wait for something go to the queue of requests. A
// request that has no room in a queue is refused at once as overloaded.
type peerHandler struct {
	self    join.Identity
	now     func() time.Time
	router  *route.Router
	tablets *tablets
	oracle  *localOracle
	survey  *scanner.ClusterSurvey
	lockd   *atomic.Pointer[lockd.Lockd]
	clients *rpc.Clients
	waiting requestQueue
	opened  <-chan struct{} // closed when the node's carrier is there
}

var _ peer.Handler = (*peerHandler)(nil)

// Raft implements peer.Handler. It also takes messages while the node starts: replicas
// drop those that they can't use yet.
func (h *peerHandler) Raft(m *wire.RaftMessage) { h.tablets.replicas.Deliver(m) }

// Request implements peer.Handler. reply is called once, perhaps before Request returns.
func (h *peerHandler) Request(_ uint64, deadline time.Time, req *wire.PeerRequest,
	reply func(*wire.PeerResponse)) {
	select {
	case <-h.opened:
	default:
		reply(refused(pb.Error_CODE_UNAVAILABLE, "the node is starting"))
		return
	}
	switch body := req.Body.(type) {
	case *wire.PeerRequest_Status:
		// Answered here, so that the time in it is not old by a wait in a queue: clocks
		// are compared by it.
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
		// The whole status takes replicas' answers, and those of meta.
		h.waiting.add(deadline, req, reply)
	// The three that follow are nearly all there are: each goes straight into the mailbox of
	// an actor, which answers by calling reply on a goroutine of its own.
	case *wire.PeerRequest_Tablet:
		h.tablet(deadline, body.Tablet, reply)
	case *wire.PeerRequest_Timestamps:
		h.timestamps(deadline, body.Timestamps, reply)
	case *wire.PeerRequest_Lockd:
		h.locks(deadline, body.Lockd, reply)
	// The set stages the piece on a worker of its own, and answers when that is done.
	case *wire.PeerRequest_Snapshot:
		h.tablets.replicas.Chunk(body.Snapshot, func(a *wire.SnapshotAnswer) {
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Snapshot{Snapshot: a}})
		})
	// The one reads the catalogue from meta, the other may ask replicas: both wait.
	case *wire.PeerRequest_Honour, *wire.PeerRequest_Recent:
		h.waiting.add(deadline, req, reply)
	case *wire.PeerRequest_Disconnect:
		closed := h.clients.Disconnect(context.Background(), body.Disconnect.GetIdentity(),
			body.Disconnect.GetId())
		reply(&wire.PeerResponse{Body: &wire.PeerResponse_Disconnect{
			Disconnect: &pb.DisconnectClientResponse{Closed: closed},
		}})
	case *wire.PeerRequest_Survey:
		// The survey answers from memory.
		reply(&wire.PeerResponse{
			Body: &wire.PeerResponse_Survey{Survey: h.survey.Answer(body.Survey)},
		})
	default: // from a node that runs a later version
		reply(refused(pb.Error_CODE_INVALID, "unknown request"))
	}
}

// refused returns an answer that is an error.
func refused(code pb.Error_Code, format string, args ...any) *wire.PeerResponse {
	return &wire.PeerResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// tablet hands an operation to this node's replica. A refusal says that nothing was done
// only where that is sure; after any other failure the outcome is unknown, and the caller
// is told so.
func (h *peerHandler) tablet(deadline time.Time, req *pb.TabletRequest,
	reply func(*wire.PeerResponse)) {
	answer := func(r *pb.TabletResponse) {
		reply(&wire.PeerResponse{Body: &wire.PeerResponse_Tablet{Tablet: r}})
	}
	port := h.router.Port(req.GetTabletId())
	// The sender's map is out of date; the answer has what this node knows.
	if port == nil {
		answer(h.router.Elsewhere(req.GetTabletId()))
		return
	}
	// The tablet drops what it gets to after the deadline, surely undone. It came as a
	// duration, so the two nodes' clocks need not agree.
	// What finishes a transaction, or keeps it alive, bypasses the queue's limit.
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

// timestamps asks this node's oracle, which answers only where meta is led. The request
// bypasses its queue limit: one request carries those of all callers of a node. No failure
// is answered as UNKNOWN: timestamps that were issued and then lost harm nobody.
func (h *peerHandler) timestamps(deadline time.Time, req *pb.TimestampsRequest,
	reply func(*wire.PeerResponse)) {
	away := func(leader uint64) {
		r := refused(pb.Error_CODE_NOT_LEADER, "meta is not led from here")
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
			reply(refused(pb.Error_CODE_OVERLOADED, "oracle: %v", r.Err))
		case r.Err != nil:
			reply(refused(pb.Error_CODE_UNAVAILABLE, "oracle: %v", r.Err))
		default:
			reply(&wire.PeerResponse{Body: &wire.PeerResponse_Timestamps{Timestamps: r.Value}})
		}
	})
	if err != nil {
		reply(refused(pb.Error_CODE_OVERLOADED, "oracle: %v", err))
	}
}

// locks asks this node's lock service. A request that only unlocks bypasses its queue
// limit: if it were refused, the locks would last until their leases end.
func (h *peerHandler) locks(deadline time.Time, req *wire.LockdRequest,
	reply func(*wire.PeerResponse)) {
	l := h.lockd.Load()
	if l == nil {
		reply(refused(pb.Error_CODE_UNAVAILABLE, "the lock service is not running"))
		return
	}
	// Its callers either try for locks or give them back, never both.
	giveBack := len(req.GetTry()) == 0
	err := l.Port().Tell(req, deadline, giveBack, func(r actorkit.Result[*wire.LockdResponse]) {
		if r.Err != nil {
			reply(refused(pb.Error_CODE_UNAVAILABLE, "%v", r.Err))
			return
		}
		reply(&wire.PeerResponse{Body: &wire.PeerResponse_Lockd{Lockd: r.Value}})
	})
	if err != nil {
		reply(refused(pb.Error_CODE_OVERLOADED, "lockd: %v", err))
	}
}
