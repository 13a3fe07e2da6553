package wire

import (
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// NodeStateName returns a node's state for display: active, draining, drained, gone.
func NodeStateName(s pb.NodeState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "NODE_STATE_"))
}

// ReplicaOn returns the descriptor's replica on a node, or nil.
func ReplicaOn(d *pb.TabletDescriptor, node uint64) *pb.Replica {
	for _, r := range d.GetReplicas() {
		if r.NodeId == node {
			return r
		}
	}
	return nil
}

// SameNodes reports whether both tablets have their replicas on the same nodes, all voters and
// none of them changing.
func SameNodes(a, b *pb.TabletDescriptor) bool {
	on, ok := voterNodes(a)
	other, otherOK := voterNodes(b)
	return ok && otherOK && len(on) > 0 && slices.Equal(on, other)
}

// voterNodes returns the nodes of the tablet's replicas in order; ok is false if a replica is
// not a voter, or its role is changing.
func voterNodes(d *pb.TabletDescriptor) (nodes []uint64, ok bool) {
	for _, r := range d.GetReplicas() {
		if r.Learner || r.Incoming || r.Outgoing {
			return nil, false
		}
		nodes = append(nodes, r.NodeId)
	}
	slices.Sort(nodes)
	return nodes, true
}
