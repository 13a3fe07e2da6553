package tablet

import (
	"testing"

	"github.com/percolator-go/percolator/actors/tablet/group"
)

// TestLeaderWithoutQuorumResigns: a quiescent leader whose other voters' nodes are believed dead
// detects it, steps down and reports for how long it has known no leader; it leads again once they
// are back.
func TestLeaderWithoutQuorumResigns(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	g.rest(1, 2, 3)
	g.cut(lead)
	k := g.nodes[lead].ticker
	lost := g.others(lead)
	k.Suspect(lost[0])
	for range 100 { // two of three are a quorum
		g.tick(lead)
	}
	if s := g.status(lead, groupTablet); !s.Leader || !s.Quiescent || s.LeaderlessMs != 0 {
		t.Fatalf("with a quorum: %v", s)
	}
	k.Suspect(lost[1])
	g.wait("the end of the leadership", func() bool {
		g.tick(lead)
		return !g.status(lead, groupTablet).Leader
	})
	for range 10 * group.ElectionTicks {
		g.tick(lead)
	}
	if s := g.status(lead, groupTablet); s.Leader || s.LeaderNode != 0 || s.Quiescent ||
		s.LeaderlessMs == 0 {
		t.Errorf("without a quorum: %v", s)
	}
	g.cut(0)
	for _, node := range lost {
		k.Alive(node)
	}
	g.elect(groupTablet, 1, 2, 3)
	g.rest(1, 2, 3)
	for _, node := range []uint64{1, 2, 3} {
		if s := g.status(node, groupTablet); s.LeaderNode == 0 || s.LeaderlessMs != 0 {
			t.Errorf("with all of them: %v", s)
		}
	}
}
