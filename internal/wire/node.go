package wire

import (
	"slices"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// NodeStateName is a node's state as people read it: active, draining, drained, gone.
func NodeStateName(s pb.NodeState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "NODE_STATE_"))
}

// ReplicaOn is the descriptor's replica on a node; nil if there is none.
func ReplicaOn(d *pb.TabletDescriptor, node uint64) *pb.Replica {
	for _, r := range d.GetReplicas() {
		if r.NodeId == node {
			return r
		}
	}
	return nil
}

// SameNodes reports whether both tablets have their replicas on the same nodes, all of them
// voters, and none of them is being changed.
func SameNodes(a, b *pb.TabletDescriptor) bool {
	on, ok := voterNodes(a)
	other, otherOK := voterNodes(b)
	return ok && otherOK && len(on) > 0 && slices.Equal(on, other)
}

// voterNodes returns the nodes of the tablet's replicas in order; ok is false if one of them
// is no voter, or is becoming one, or is to be one no more.
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
