package tablet

import (
	"testing"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestSeveralLearners: learners that come in one request come one entry after the other,
// so that the group is in no joint configuration that nobody leaves: the next change, of
// voters, goes through.
func TestSeveralLearners(t *testing.T) {
	g := newGroup(t, 3, 1, testTick)
	d := g.change(groupTablet, step(pb.ReplicaChange_KIND_ADD_LEARNER, 2), step(pb.ReplicaChange_KIND_ADD_LEARNER, 3))
	if len(d.Replicas) != 3 || !d.Replicas[1].Learner || !d.Replicas[2].Learner {
		t.Fatalf("after two learners were added: %v", d)
	}
	g.write(groupTablet, "r", "v")
	g.even(groupTablet, 1, 2, 3)
	d = g.change(groupTablet, step(pb.ReplicaChange_KIND_PROMOTE, 2), step(pb.ReplicaChange_KIND_PROMOTE, 3))
	if got := len(group.Voters(d)); got != 3 || group.IsJoint(d) {
		t.Fatalf("after both were promoted: %v", d)
	}
	g.write(groupTablet, "r", "w")
	g.even(groupTablet, 1, 2, 3)
}
