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

// Listing of nodes. Meta may have lost its quorum when an operator asks: the list is then built
// from the node table as last read by this node, and from the tablet map.

// Nodes implements pb.AdminServer. It combines the node table in meta, or as this node last read it,
// with gossip.
func (s *Service) Nodes(ctx context.Context, req *pb.NodesRequest) (*pb.NodesResponse, error) {
	out := &pb.NodesResponse{}
	if err := s.nodeTable(ctx, out); err != nil {
		return nil, err
	}
	out.Nodes = nodesOf(out.Nodes, s.cfg.Members.Alive())
	// Placement runs on the leader of meta, which has just not responded.
	if out.Unavailable == "" {
		s.whyNotDrained(ctx, out.Nodes)
	}
	// Only on request: it is one request to every tablet's leader, served from responses at most
	// leadersAge old.
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
	// leadersAge is the maximum age of a cached list of leaders.
	leadersAge = time.Second
	// metaTimeout limits the request to meta.
	metaTimeout = 1500 * time.Millisecond
)

// nodesOf adds the members' gossip records to the node table's records, in place. Members without
// a record come last.
func nodesOf(records []*pb.Node, members []cluster.Member) []*pb.Node {
	for _, m := range members {
		i := slices.IndexFunc(records, func(n *pb.Node) bool { return n.NodeId == m.NodeID })
		// The node gossips but has not registered yet, or has been forgotten.
		if i < 0 {
			records = append(records, &pb.Node{NodeId: m.NodeID})
			i = len(records) - 1
		}
		n := records[i]
		n.Incarnation, n.Alive, n.LeadsMeta = m.Incarnation, true, m.LeadsMeta != 0
		// Gossip has the newer addresses; missing ones stay as in meta.
		n.Listen, n.Peer = cmp.Or(m.Listen, n.Listen), cmp.Or(m.Peer, n.Peer)
		n.Gossip, n.Http = cmp.Or(m.Gossip, n.Gossip), cmp.Or(m.HTTP, n.Http)
		n.Replicas, n.Leaders = m.Load.Replicas, m.Load.Leaders
		n.SizeBytes, n.Load, n.DiskFree = m.Load.SizeBytes, m.Load.Load, m.Load.DiskFree
	}
	return records
}

// nodeTable fills in the node table from meta, or, failing that, from this node's last read
// combined with the nodes that hold replicas by the tablet map.
func (s *Service) nodeTable(ctx context.Context, out *pb.NodesResponse) error {
	asking, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	records, err := s.cfg.Nodes.Nodes(asking)
	if err == nil {
		s.nodes.Set(records)
	} else {
		// The caller's context has ended, which says nothing about meta.
		if ctx.Err() != nil {
			return err
		}
		out.Unavailable = err.Error()
		records, out.AgeMs = s.nodes.GetMs()
	}
	for _, r := range records {
		out.Nodes = append(out.Nodes, nodePB(r))
	}
	// The table is old, or this node has never read it: the holders of replicas are nodes in any
	// case.
	if out.Unavailable != "" {
		out.Nodes = withHolders(out.Nodes, s.cfg.Router.All())
	}
	return nil
}

// withHolders adds the nodes that hold replicas by the tablet map and are missing in nodes.
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

// RememberNodes reads the node table, for use while meta does not respond. The node calls it when
// another node has appeared.
func (s *Service) RememberNodes(ctx context.Context) error {
	records, err := s.cfg.Nodes.Nodes(ctx)
	if err == nil {
		s.nodes.Set(records)
	}
	return err
}

// nodePB returns a node's record in the form that operators receive.
func nodePB(r *wire.NodeRecord) *pb.Node {
	return &pb.Node{
		NodeId: r.NodeId, Incarnation: r.Incarnation, Listen: r.Listen, Peer: r.Peer,
		Gossip: r.Gossip, Http: r.Http,
		Labels: r.Labels, State: r.State, Version: r.Version, Program: r.Program, DrainReplicas: r.DrainReplicas,
	}
}

// whyNotDrained fills in the reasons for which placement has not completed drains. Without a
// response from placement the nodes are unchanged.
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
