package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// errRefused marks refusals of an operator's orders.
var errRefused = errors.New("node: refused")

func refuse(format string, args ...any) error {
	return errors.Join(&txn.ServerError{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf(format, args...)}, errRefused)
}

// nodePB is a node's record as operators see it.
func nodePB(r *wire.NodeRecord) *pb.Node {
	return &pb.Node{
		NodeId: r.NodeId, Incarnation: r.Incarnation, Listen: r.Listen, Peer: r.Peer, Gossip: r.Gossip, Http: r.Http,
		Labels: r.Labels, State: r.State, Version: r.Version,
	}
}

// whyNotDrained asks placement, where meta is led, what its drains wait for; without an
// answer they are left without.
func (n *Node) whyNotDrained(ctx context.Context, nodes []*pb.Node) {
	drains := func(x *pb.Node) bool { return x.State == pb.NodeState_NODE_STATE_DRAINING }
	if !slices.ContainsFunc(nodes, drains) {
		return
	}
	status, leader := n.placementStatus(), n.router.Leader(cluster.MetaTablet)
	if status == nil && leader != 0 && leader != n.identity.NodeID {
		if s, err := n.statusOf(ctx, leader, true); err == nil {
			status = s.GetPlacement()
		}
	}
	for _, x := range nodes {
		if drains(x) {
			x.Blocked = status.GetBlockedNodes()[x.NodeId]
		}
	}
}

// DrainNode implements txn.Admin. A drain that would leave too few nodes for the replicas
// is refused.
func (a *admin) DrainNode(ctx context.Context, req *pb.DrainNodeRequest) (*pb.DrainNodeResponse, error) {
	const (
		active, draining = pb.NodeState_NODE_STATE_ACTIVE, pb.NodeState_NODE_STATE_DRAINING
		drained          = pb.NodeState_NODE_STATE_DRAINED
	)
	to, from := draining, []pb.NodeState{active, drained}
	if req.Undo {
		to, from = active, []pb.NodeState{draining, drained}
	} else if err := a.mayDrain(ctx, req.NodeId); err != nil {
		return nil, err
	}
	r, err := a.n.meta.SetNodeState(ctx, req.NodeId, to, from...)
	if err != nil {
		return nil, err
	}
	a.n.changes.jobs.place()
	return &pb.DrainNodeResponse{Node: nodesOf([]*pb.Node{nodePB(r)}, a.member(req.NodeId))[0]}, nil
}

// member is what gossip says of the node, if it does.
func (a *admin) member(id uint64) []cluster.Member {
	if m, alive := a.n.members.Member(id); alive {
		return []cluster.Member{m}
	}
	return nil
}

// mayDrain refuses a drain that could not come to an end: the other nodes are too few for
// as many replicas as there are.
func (a *admin) mayDrain(ctx context.Context, id uint64) error {
	records, err := a.n.meta.Nodes(ctx)
	if err != nil {
		return err
	}
	var others, all int
	for _, r := range records {
		if r.State != pb.NodeState_NODE_STATE_ACTIVE || r.GoneSince != 0 {
			continue
		}
		if all++; r.NodeId != id {
			others++
		}
	}
	p, err := a.n.readPolicy(ctx)
	if err != nil {
		return err
	}
	if want := placement.Target(int(p.GetReplicas()), all); all > others && others < want {
		return refuse("node %d can't be drained: every tablet has %d replicas, on as many nodes, and only %d other live nodes may hold one; add a node first",
			id, want, others)
	}
	return nil
}

// ForgetNode implements txn.Admin. A node that this one has heard of is refused, as is
// one that meta's leader has.
func (a *admin) ForgetNode(ctx context.Context, req *pb.ForgetNodeRequest) (*pb.ForgetNodeResponse, error) {
	if m, alive := a.n.members.Member(req.NodeId); alive {
		return nil, refuse("node %d is alive, at %s: drain and stop it first", m.NodeID, m.Listen)
	}
	return &pb.ForgetNodeResponse{}, a.n.meta.ForgetNode(ctx, req.NodeId)
}

// MoveTablet implements txn.Admin.
func (a *admin) MoveTablet(ctx context.Context, req *pb.MoveTabletRequest) (*pb.MoveTabletResponse, error) {
	d, err := a.n.meta.OrderMove(ctx, req)
	if err != nil {
		return nil, err
	}
	a.n.changes.jobs.place()
	return &pb.MoveTabletResponse{Tablet: d}, nil
}
