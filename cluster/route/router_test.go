package route

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestLateRefusal: a replica's refusal from before its election may reach the map after the report
// that it leads. It must not hide the tablet from the jobs of its node for the tablets that it
// leads, above all from the sweeper: the remains of transactions there would stay forever.
func TestLateRefusal(t *testing.T) {
	const self, other = 1, 4
	refusal := func(leader uint64) *pb.TabletResponse {
		return &pb.TabletResponse{
			Error: &pb.Error{Code: pb.Error_CODE_NOT_LEADER, LeaderNode: leader},
		}
	}
	carrier, _ := carried(nil)
	router := carrier.router
	check := func(when string, here bool, leader uint64) {
		t.Helper()
		led := router.LedHere()
		if router.LeadsHere(testedTablet) != here ||
			(len(led) == 1 && led[0].TabletId == testedTablet) != here {
			t.Errorf("%s: led here: %t, %v", when, router.LeadsHere(testedTablet), led)
		}
		if got := router.Leader(testedTablet); got != leader {
			t.Errorf("%s: node %d is believed to lead, want %d", when, got, leader)
		}
	}
	late := &forward{Carrier: carrier, d: &pb.TabletDescriptor{TabletId: testedTablet}}
	check("at first", false, 0)
	before := router.Version()
	router.SetLeading(testedTablet, self)
	check("elected", true, self)
	late.learn(self, refusal(0))
	check("a refusal without a leader", true, self)
	late.learn(self, refusal(other))
	check("a refusal that names another", true, other) // the refusing replica names another leader
	late.learn(other, refusal(self))
	check("the other's refusal", true, self)
	router.SetFollowing(testedTablet, other)
	check("another elected", false, other)
	late.learn(other, refusal(0))
	check("who does not lead any more", false, 0)
	router.SetLeading(testedTablet, self)
	router.Detach(testedTablet)
	check("gone from this node", false, self)
	if router.Version() == before {
		t.Error("the map's version has not changed")
	}
}

// TestForgottenDescriptorChangesTheVersion: the version changes when the map drops the descriptor of a
// merged tablet, which a query does.
func TestForgottenDescriptorChangesTheVersion(t *testing.T) {
	router := NewRouter()
	router.Update(&pb.TabletDescriptor{TabletId: 2, Epoch: 1, StartTable: 16, StartRow: []byte("m"), EndUnbounded: true})
	router.Update(&pb.TabletDescriptor{TabletId: 1, Epoch: 2, StartTable: 16, EndUnbounded: true})
	before := router.Version()
	if all := router.All(); len(all) != 1 || router.Descriptor(2) != nil {
		t.Fatalf("%v", all)
	}
	if router.Version() == before {
		t.Error("the version has not changed")
	}
}
