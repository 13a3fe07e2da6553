package cluster

import (
	"context"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// MetaRegistry is Registry over meta's node table and gossip.
type MetaRegistry struct {
	Meta    *Meta
	Members Members
	// Now is a fresh timestamp of the oracle.
	Now func(ctx context.Context) (mvcc.Timestamp, error)
	// Tablet is the meta tablet's descriptor, as this node knows it.
	Tablet func() *pb.TabletDescriptor
}

var _ Registry = (*MetaRegistry)(nil)

// Register implements Registry. A node whose id is alive at another address is refused as a duplicate, also if it is a later
// incarnation: two processes would run on copies of one directory. A process that was killed is taken for alive for a
// second or so; who comes after it asks again.
func (r *MetaRegistry) Register(ctx context.Context, rec *wire.NodeRecord) error {
	if m, ok := r.Members.Member(rec.NodeId); ok && m.Gossip != "" && (m.Listen != rec.Listen || m.Gossip != rec.Gossip) {
		return fmt.Errorf("%w: node %d, incarnation %d, is alive at %s; if this directory is a copy, delete it and join with an empty one",
			ErrDuplicateNode, rec.NodeId, m.Incarnation, m.Listen)
	}
	now, err := r.Now(ctx)
	if err != nil {
		return fmt.Errorf("cluster: register a node: %w", err)
	}
	_, err = r.Meta.RegisterNode(ctx, rec, uint64(now))
	return err
}

// Contacts implements Registry.
func (r *MetaRegistry) Contacts(ctx context.Context) (*pb.JoinResponse, error) {
	nodes, err := r.Meta.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.JoinResponse{Meta: r.Tablet()}
	for _, n := range nodes {
		if n.State != pb.NodeState_NODE_STATE_GONE {
			out.Nodes = append(out.Nodes, &pb.Node{
				NodeId: n.NodeId, Incarnation: n.Incarnation, Listen: n.Listen, Peer: n.Peer, Gossip: n.Gossip, Http: n.Http, Labels: n.Labels,
			})
		}
	}
	return out, nil
}
