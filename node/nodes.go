package node

import (
	"cmp"
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// Nodes implements txn.Admin: the node table in meta beside what this node has heard by gossip.
func (a *admin) Nodes(ctx context.Context, _ *pb.NodesRequest) (*pb.NodesResponse, error) {
	records, err := a.n.meta.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	table := make([]*pb.Node, len(records))
	for i, r := range records {
		table[i] = nodePB(r)
	}
	nodes := nodesOf(table, a.n.members.Alive())
	a.n.whyNotDrained(ctx, nodes)
	return &pb.NodesResponse{Nodes: nodes}, nil
}

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
