package tablet

import (
	"fmt"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestReplicate: committed entries are in every replica's own store, and one replica leads.
func TestReplicate(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	for i := range 20 {
		g.write(groupTablet, fmt.Sprintf("r%d", i), fmt.Sprint(i))
	}
	g.even(groupTablet, 1, 2, 3)
	leaders := 0
	for node := range g.nodes {
		if g.status(node, groupTablet).Leader {
			leaders++
		}
		for i := range 20 {
			if got := g.stored(node, fmt.Sprintf("r%d", i)); got != fmt.Sprint(i) {
				t.Errorf("node %d has %q in row %d", node, got, i)
			}
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders, want 1", leaders)
	}
	lead := g.leader(groupTablet)
	e := g.at(lead%3+1, groupTablet, getOf(g.take(1), "r0")).GetError()
	if e.GetCode() != pb.Error_CODE_NOT_LEADER || e.LeaderNode != lead {
		t.Errorf("a follower answers %v while node %d leads", e, lead)
	}
}

// TestLeaderDies: another replica leads and has every acknowledged entry; the old leader returns as
// a follower and receives the entries that it has missed.
func TestLeaderDies(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	for round := range 3 {
		row := fmt.Sprintf("r%d", round)
		g.write(groupTablet, row, "before")
		old := g.leader(groupTablet)
		g.nodes[old].stop(groupTablet)
		if got := g.read(groupTablet, row, old); got != "before" {
			t.Fatalf("round %d: the new leader has %q", round, got)
		}
		g.write(groupTablet, row, "after", old)
		g.nodes[old].spawn(groupTablet)
		g.even(groupTablet, 1, 2, 3)
		if got := g.stored(old, row); got != "after" {
			t.Errorf("round %d: the old leader has %q", round, got)
		}
	}
}
