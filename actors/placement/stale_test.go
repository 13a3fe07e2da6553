package placement

import (
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestReplacesStale: a replica that its leader reports as stale is removed and recreated, on its
// own node if there is no other, whether voter or learner. Without a quorum of the others nothing
// is done, and placement reports it.
func TestReplacesStale(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		w := newWorld(t, nodes)
		for range 3 {
			w.add(1, 2, 3)
		}
		w.add(1, 2, 3).d.Replicas[2].Learner = true
		for _, f := range w.tablets {
			f.stale = map[uint64]bool{3: true}
		}
		w.turns(newTest(t, w))
		w.checkVoters(3)
		for _, f := range w.tablets {
			for _, r := range f.d.Replicas {
				if f.stale[r.ReplicaId] || r.Learner {
					t.Errorf("%d nodes: tablet %d keeps %v", nodes, f.d.TabletId, r)
				}
			}
		}
	}
	checkStaleCounts(t)
	w := newWorld(t, 3)
	f := w.add(1, 2, 3)
	f.stale, w.alive[2] = map[uint64]bool{3: true}, false
	p := newTest(t, w)
	w.turns(p)
	if f.d.Epoch != 1 {
		t.Errorf("without a quorum its replicas have become %v", f.d.Replicas)
	}
	s := &State{Replicas: 3, Nodes: []Node{{ID: 1, Alive: true}, {ID: 2}, {ID: 3, Alive: true}}}
	f.leader = 1
	s.Tablets = []Tablet{{D: f.d, Status: w.statusOf(f)}}
	if plan := Make(s); len(plan.Steps) > 0 || !strings.Contains(strings.Join(plan.Blocked, "\n"),
		"the replica on node 3 is stale, and only 1 of the voters on nodes [1 2 3] are live") {
		t.Errorf("%+v", plan)
	}
}

// checkStaleCounts: stale voters are demoted without regard to maxChanging, but count: no other tablet
// gets a new learner beside them.
func checkStaleCounts(t *testing.T) {
	t.Helper()
	w := newWorld(t, 5)
	s := &State{Replicas: 3, Nodes: []Node{{ID: 5, Gone: true}}}
	for id := range uint64(4) {
		s.Nodes = append(s.Nodes, Node{ID: id + 1, Alive: true})
	}
	for i := range maxChanging + 2 {
		f := w.add(1, 2, 3)
		if i <= maxChanging {
			f.stale = map[uint64]bool{3: true}
		} else {
			f = w.add(1, 2, 5) // is to replace the one on a node that is gone
		}
		f.leader = 1
		s.Tablets = append(s.Tablets, Tablet{D: f.d, Status: w.statusOf(f)})
	}
	plan := Make(s)
	for _, step := range plan.Steps {
		if len(step.Changes) != 1 || step.Changes[0].Kind != pb.ReplicaChange_KIND_DEMOTE {
			t.Errorf("a step beside the stale ones: %+v", step)
		}
	}
	if len(plan.Steps) != maxChanging+1 || plan.Changing != maxChanging+1 {
		t.Errorf("%d steps, %d tablets are changing; want %d: %+v", len(plan.Steps), plan.Changing,
			maxChanging+1, plan.Steps)
	}
}
