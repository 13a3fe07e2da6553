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
	// Placement runs beside the leader of meta, which has just not answered.
	if out.Unavailable == "" {
		s.whyNotDrained(ctx, out.Nodes)
	}
	// Only for those who ask: it is a question to every tablet's leader, answered from what
	// was heard within the last second.
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

// nodesOf adds what gossip says of members to the node table's records, in place. Members
// that have no record yet come last.
func nodesOf(records []*pb.Node, members []cluster.Member) []*pb.Node {
	for _, m := range members {
		i := slices.IndexFunc(records, func(n *pb.Node) bool { return n.NodeId == m.NodeID })
		// It gossips but has not registered yet, or has been forgotten.
		if i < 0 {
			records = append(records, &pb.Node{NodeId: m.NodeID})
			i = len(records) - 1
		}
		n := records[i]
		n.Incarnation, n.Alive, n.LeadsMeta = m.Incarnation, true, m.LeadsMeta != 0
		// Gossip has the newer addresses; what it leaves out stays as meta has it.
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
	records, err := s.cfg.Nodes.Nodes(asking)
	if err == nil {
		s.nodes.Set(records)
	} else {
		// The caller has gone, which says nothing of meta.
		if ctx.Err() != nil {
			return err
		}
		out.Unavailable = err.Error()
		records, out.AgeMs = s.nodes.GetMs()
	}
	for _, r := range records {
		out.Nodes = append(out.Nodes, nodePB(r))
	}
	// The table is old, or this node has never read it: the holders of replicas are nodes
	// in any case.
	if out.Unavailable != "" {
		out.Nodes = withHolders(out.Nodes, s.cfg.Router.All())
	}
	return nil
}

// withHolders adds the nodes that hold replicas by the tablet map and are not in nodes.
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

// RememberNodes reads the node table, for answers at a time when meta gives none. The node's
// background calls it now and then.
func (s *Service) RememberNodes(ctx context.Context) error {
	records, err := s.cfg.Nodes.Nodes(ctx)
	if err == nil {
		s.nodes.Set(records)
	}
	return err
}

// nodePB returns a node's record as operators see it.
func nodePB(r *wire.NodeRecord) *pb.Node {
	return &pb.Node{
		NodeId: r.NodeId, Incarnation: r.Incarnation, Listen: r.Listen, Peer: r.Peer,
		Gossip: r.Gossip, Http: r.Http,
		Labels: r.Labels, State: r.State, Version: r.Version, DrainReplicas: r.DrainReplicas,
	}
}

// whyNotDrained fills in what placement says its drains wait for. Without an answer from
// placement the nodes stay as they are.
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
