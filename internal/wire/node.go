package wire

import (
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
