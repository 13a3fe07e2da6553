package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// Nodes implements txn.Admin: the node table in meta, or as this node last read it,
// beside what it has heard by gossip.
func (a *admin) Nodes(ctx context.Context, req *pb.NodesRequest) (*pb.NodesResponse, error) {
	out := &pb.NodesResponse{}
	if err := a.n.nodeTable(ctx, out); err != nil {
		return nil, err
	}
	out.Nodes = nodesOf(out.Nodes, a.n.members.Alive())
	if out.Unavailable == "" {
		a.n.whyNotDrained(ctx, out.Nodes)
	}
	if req.GetLeaders() {
		statuses, err := a.n.census.get(ctx, leadersAge)
		if err != nil {
			return nil, err
		}
		for _, s := range statuses {
			if s.Leader {
				out.Leaders = append(out.Leaders, &pb.TabletLeader{TabletId: s.GetTablet().GetTabletId(), NodeId: s.NodeId})
			}
		}
	}
	return out, nil
}

// leadersAge is how old an answer about who leads may be.
const leadersAge = time.Second

// nodesOf adds what gossip says to the node table. Nodes that meta has not heard of yet come last.
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
		n.Replicas, n.Leaders, n.SizeBytes, n.Load, n.DiskFree = m.Load.Replicas, m.Load.Leaders, m.Load.SizeBytes, m.Load.Load, m.Load.DiskFree
	}
	return records
}
