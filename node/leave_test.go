package node

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
)

// present has the given members, all of them alive.
type present struct {
	cluster.Members
	alive map[uint64]bool
}

func (p present) Member(node uint64) (cluster.Member, bool) {
	return cluster.Member{NodeID: node}, p.alive[node]
}

// TestTransferableToLiveVoters: a stopping node transfers a leadership only if another voter's node
// is alive. The last node of a cluster transfers none.
func TestTransferableToLiveVoters(t *testing.T) {
	replica := func(node uint64) *pb.Replica { return &pb.Replica{NodeId: node, ReplicaId: node} }
	learner, outgoing := replica(3), replica(4)
	learner.Learner, outgoing.Outgoing = true, true
	router := route.NewRouter()
	router.Update(&pb.TabletDescriptor{
		TabletId: 7, Epoch: 1, Replicas: []*pb.Replica{replica(1), replica(2), learner, outgoing},
	})
	router.SetLeading(7, 1)
	for _, c := range []struct {
		alive []uint64
		want  int
	}{
		{[]uint64{1, 2}, 1},
		{[]uint64{1, 2, 3, 4}, 1},
		{[]uint64{1}, 0},
		{[]uint64{1, 3, 4}, 0},
	} {
		members := present{alive: map[uint64]bool{}}
		for _, node := range c.alive {
			members.alive[node] = true
		}
		tablets := &tablets{node: 1, router: router, peerNodes: cluster.NewPeerNodes(1)}
		tablets.peerNodes.Connect(members, nil)
		if got := len(tablets.transferable()); got != c.want {
			t.Errorf("nodes %v are alive: %d tablets can be transferred; want %d", c.alive, got, c.want)
		}
	}
}
