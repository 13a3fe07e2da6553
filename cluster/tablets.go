package cluster

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// FirstTablets are the tablets that a new cluster begins with, on its first node: meta,
// and one for all user tables.
func FirstTablets(node uint64) []*pb.TabletDescriptor {
	replicas := func() []*pb.Replica { return []*pb.Replica{{ReplicaId: 1, NodeId: node}} }
	users := uint32(mvcc.FirstUserTable)
	return []*pb.TabletDescriptor{
		{TabletId: MetaTablet, Epoch: 1, EndTable: users, Replicas: replicas(), NextReplicaId: 2},
		{TabletId: firstUserTablet, Epoch: 1, StartTable: users, EndUnbounded: true,
			Replicas: replicas(), NextReplicaId: 2},
	}
}

// The ids of the first tablets.
const (
	MetaTablet      = 1
	firstUserTablet = 2
	FirstFreeTablet = 3 // and all after it
)

// MaxNodes bounds the nodes of a cluster, with those that are away and not forgotten.
const MaxNodes = 1024
