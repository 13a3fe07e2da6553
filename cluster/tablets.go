package cluster

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// FirstTablets returns the tablets of a new cluster, on its first node: the meta tablet, and
// one for all user tables.
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
	FirstFreeTablet = 3 // the first id for further tablets
)

// MaxNodes is the most nodes of a cluster, including those that are gone and not forgotten.
const MaxNodes = 1024
