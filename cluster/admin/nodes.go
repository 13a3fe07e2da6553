package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file lists nodes. Meta may be without a quorum just when an operator asks: the
// list is then made of the node table as this node read it last, and of the tablet map.

// Nodes implements pb.AdminServer: the node table in meta, or as this node last read it,
// beside what it has heard by gossip.
func (s *Service) Nodes(ctx context.Context, req *pb.NodesRequest) (*pb.NodesResponse, error) {
	out := &pb.NodesResponse{}
	if err := s.nodeTable(ctx, out); err != nil {
		return nil, err
	}
	out.Nodes = nodesOf(out.Nodes, s.cfg.Members.Alive())
	if out.Unavailable == "" {
		s.whyNotDrained(ctx, out.Nodes)
	}
	if req.GetLeaders() {
		statuses, err := s.cfg.Node.Leaders(ctx, leadersAge)
		if err != nil {
			return nil, err
		}
		for _, s := range statuses {
			if s.Leader {
				out.Leaders = append(out.Leaders,
					&pb.TabletLeader{TabletId: s.GetTablet().GetTabletId(), NodeId: s.NodeId})
			}
		}
	}
	return out, nil
}

const (
	// leadersAge is how old an answer about who leads may be.
	leadersAge = time.Second
	// nodesPatience bounds the question to meta.
	nodesPatience = 1500 * time.Millisecond
)

// nodesOf adds what gossip says to the node table. Nodes that meta has not heard of yet
// come last.
func nodesOf(records []*pb.Node, members []cluster.Member) []*pb.Node {
	for _, m := range members {
		i := slices.IndexFunc(records, func(n *pb.Node) bool { return n.NodeId == m.NodeID })
		if i < 0 {
			records = append(records, &pb.Node{NodeId: m.NodeID})
			i = len(records) - 1
		}
		n := records[i]
		n.Incarnation, n.Alive, n.LeadsMeta = m.Incarnation, true, m.LeadsMeta != 0
		n.Listen, n.Peer = cmp.Or(m.Listen, n.Listen), cmp.Or(m.Peer, n.Peer)
		n.Gossip, n.Http = cmp.Or(m.Gossip, n.Gossip), cmp.Or(m.HTTP, n.Http)
		n.Replicas, n.Leaders = m.Load.Replicas, m.Load.Leaders
		n.SizeBytes, n.Load, n.DiskFree = m.Load.SizeBytes, m.Load.Load, m.Load.DiskFree
	}
	return records
}

// nodeTable fills in the node table: as meta has it, else as it had it when this node read
// it last, with whoever holds replicas by the tablet map.
func (s *Service) nodeTable(ctx context.Context, out *pb.NodesResponse) error {
	asking, cancel := context.WithTimeout(ctx, nodesPatience)
	defer cancel()
	records, err := s.cfg.Meta.Nodes(asking)
	if err == nil {
		s.nodes.Set(records)
	} else {
		if ctx.Err() != nil {
			return err
		}
		out.Unavailable = err.Error()
		records, out.AgeMs = s.nodes.GetMs()
	}
	for _, r := range records {
		out.Nodes = append(out.Nodes, nodePB(r))
	}
	if out.Unavailable != "" {
		out.Nodes = withHolders(out.Nodes, s.cfg.Router.All())
	}
	return nil
}

// withHolders adds the nodes that have replicas and are not among the others.
func withHolders(nodes []*pb.Node, tablets []*pb.TabletDescriptor) []*pb.Node {
	for _, d := range tablets {
		for _, r := range d.GetReplicas() {
			if !slices.ContainsFunc(nodes, func(x *pb.Node) bool { return x.NodeId == r.NodeId }) {
				nodes = append(nodes, &pb.Node{NodeId: r.NodeId})
			}
		}
	}
	return nodes
}

// RememberNodes reads the node table for when meta does not answer.
func (s *Service) RememberNodes(ctx context.Context) error {
	records, err := s.cfg.Meta.Nodes(ctx)
	if err == nil {
		s.nodes.Set(records)
	}
	return err
}

// nodePB is a node's record as operators see it.
func nodePB(r *wire.NodeRecord) *pb.Node {
	return &pb.Node{
		NodeId: r.NodeId, Incarnation: r.Incarnation, Listen: r.Listen, Peer: r.Peer,
		Gossip: r.Gossip, Http: r.Http,
		Labels: r.Labels, State: r.State, Version: r.Version,
	}
}

// whyNotDrained asks placement what its drains wait for; without an answer they are left
// without.
func (s *Service) whyNotDrained(ctx context.Context, nodes []*pb.Node) {
	drains := func(x *pb.Node) bool { return x.State == pb.NodeState_NODE_STATE_DRAINING }
	if !slices.ContainsFunc(nodes, drains) {
		return
	}
	status := s.cfg.Node.PlacementStatus(ctx)
	for _, x := range nodes {
		if drains(x) {
			x.Blocked = status.GetBlockedNodes()[x.NodeId]
		}
	}
}
