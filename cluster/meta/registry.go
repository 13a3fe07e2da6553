package meta

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The Registry that package join requires for admitting other nodes. It has no state. Its methods
// run on the goroutines of the Membership service and of this node's own Upkeep.

// Registry registers nodes in the node table. It implements join.Registry over the node table and
// gossip.
type Registry struct {
	Nodes   *NodeTable
	Members cluster.Members
	// Now returns a new timestamp of the oracle.
	Now func(ctx context.Context) (mvcc.Timestamp, error)
	// Tablet returns this node's descriptor of the meta tablet.
	Tablet func() *pb.TabletDescriptor
}

// Register implements join.Registry. It rejects a node whose id is alive at another address as a
// duplicate, even if it is a later incarnation: two processes would run on copies of one
// directory. A killed process counts as alive for about a second; its successor retries.
func (r *Registry) Register(ctx context.Context, rec *wire.NodeRecord) error {
	if m, ok := r.Members.Member(rec.NodeId); ok && m.Gossip != "" &&
		(m.Listen != rec.Listen || m.Gossip != rec.Gossip) {
		return fmt.Errorf("%w: node %d, incarnation %d, is alive at %s; if this directory is a "+
			"copy, delete it and join with an empty one",
			cluster.ErrDuplicateNode, rec.NodeId, m.Incarnation, m.Listen)
	}
	now, err := r.Now(ctx)
	if err != nil {
		return fmt.Errorf("meta: register a node: %w", err)
	}
	_, err = r.Nodes.RegisterNode(ctx, rec, uint64(now))
	return err
}

// Contacts implements join.Registry. A living node that has not registered its incarnation yet is
// listed with gossip's addresses, any other with those of the node table. A node declared gone is
// missing, unless gossip knows a newer incarnation of it.
func (r *Registry) Contacts(ctx context.Context) (*pb.JoinResponse, error) {
	nodes, err := r.Nodes.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	alive := map[uint64]cluster.Member{}
	for _, m := range r.Members.Alive() {
		alive[m.NodeID] = m
	}
	out := &pb.JoinResponse{Meta: r.Tablet()}
	for _, n := range nodes {
		// The node table has this incarnation or a later one, so gossip has nothing newer.
		if m, ok := alive[n.NodeId]; ok && m.Incarnation <= n.Incarnation {
			delete(alive, n.NodeId)
		}
		// A node declared gone is not listed as a contact.
		if n.State == pb.NodeState_NODE_STATE_GONE {
			continue
		}
		known := &pb.Node{
			NodeId: n.NodeId, Incarnation: n.Incarnation, Listen: n.Listen, Peer: n.Peer,
			Gossip: n.Gossip, Http: n.Http, Labels: n.Labels,
		}
		// With the last starts a joining node recognizes old copies of others' directories.
		if last := len(n.Starts) - 1; last >= 0 {
			known.Start = n.Starts[last]
		}
		out.Nodes = append(out.Nodes, known)
	}
	for _, m := range slices.SortedFunc(maps.Values(alive), func(a, b cluster.Member) int {
		return cmp.Compare(a.NodeID, b.NodeID)
	}) {
		// The member has not published an address.
		if m.Listen == "" {
			continue
		}
		known := &pb.Node{
			NodeId: m.NodeID, Incarnation: m.Incarnation, Listen: m.Listen, Peer: m.Peer,
			Gossip: m.Gossip, Http: m.HTTP,
		}
		// The remaining entries of alive are newer than the node table's and replace them.
		out.Nodes = slices.DeleteFunc(out.Nodes, func(n *pb.Node) bool {
			return n.NodeId == m.NodeID
		})
		out.Nodes = append(out.Nodes, known)
	}
	return out, nil
}
