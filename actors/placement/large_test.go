package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// largeState is a cluster at rest, with three replicas of each tablet on consecutive nodes. Each
// zone has every tenth node.
func largeState(nodes, tablets int) *State {
	s := &State{Replicas: 3}
	for i := range nodes {
		s.Nodes = append(s.Nodes, Node{
			ID: uint64(i + 1), Zone: fmt.Sprint(i % 10), State: pb.NodeState_NODE_STATE_ACTIVE, Alive: true,
		})
	}
	for i := range tablets {
		d := &pb.TabletDescriptor{TabletId: uint64(i + 1), Epoch: 1}
		status := &pb.StatusResponse{Leader: true, SizeBytes: 64 << 20, Tablet: d}
		for k := range 3 {
			r := &pb.Replica{ReplicaId: uint64(k + 1), NodeId: uint64((i+k)%nodes + 1)}
			d.Replicas = append(d.Replicas, r)
			status.Replicas = append(status.Replicas, &pb.ReplicaProgress{Replica: r, Active: true})
		}
		status.NodeId = d.Replicas[0].NodeId
		s.Tablets = append(s.Tablets, Tablet{D: d, Status: status})
	}
	return s
}

// TestBestMoveIsThatOfAllNodes: leaving out nodes at which a move gains nothing does not change
// the move, whatever the zones, sizes, loads and missing nodes.
func TestBestMoveIsThatOfAllNodes(t *testing.T) {
	found := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := largeState(6+rng.IntN(10), 40)
		for i := range s.Nodes {
			n := &s.Nodes[i]
			n.Zone, n.Full, n.Gone = fmt.Sprint(rng.IntN(5)), rng.IntN(10) == 0, rng.IntN(12) == 0
		}
		for i := range s.Tablets {
			s.Tablets[i].Status.SizeBytes = rng.Uint64N(200 << 20)
			s.Tablets[i].Load = rng.ExpFloat64() * 1000
		}
		p := newPlanner(s)
		p.count()
		uneven := p.unevenNodes()
		all := uneven
		all.under = all.all
		for i := range s.Tablets {
			from, to, c := p.bestMove(&s.Tablets[i], uneven)
			wantFrom, wantTo, want := p.bestMove(&s.Tablets[i], all)
			if from != wantFrom || to != wantTo || c != want {
				t.Fatalf("seed %d, tablet %d: %d to %d (%+v), want %d to %d (%+v)", seed, i, from, to, c, wantFrom, wantTo, want)
			}
			if to != 0 {
				found++
			}
		}
	}
	if found == 0 {
		t.Error("no move was worth its cost")
	}
}

// TestBalanceAtRestLooksAtFewNodes: the work of a pass over a cluster at rest does not grow with
// the product of tablets and nodes.
func TestBalanceAtRestLooksAtFewNodes(t *testing.T) {
	p := newPlanner(largeState(100, 1000))
	p.count()
	if u := p.unevenNodes(); len(u.under) > 0 || len(u.all) != 100 {
		t.Errorf("%d of %d nodes are below their share", len(u.under), len(u.all))
	}
}

// TestRepairsGrowWithTheNodes: when a tenth of the nodes is gone, tablets begin to replace their
// replicas in proportion to the nodes; none gets too many new ones.
func TestRepairsGrowWithTheNodes(t *testing.T) {
	for nodes, want := range map[int]int{10: 8, 16: 8, 40: 20, 100: 50} {
		s := largeState(nodes, 20*nodes)
		for i := 0; i < nodes; i += 10 {
			s.Nodes[i].Alive, s.Nodes[i].Gone = false, true
		}
		begun, incoming := 0, map[uint64]int{}
		for _, st := range Make(s).Steps {
			for _, c := range st.Changes {
				if c.Kind == pb.ReplicaChange_KIND_ADD_LEARNER {
					begun++
					incoming[c.NodeId]++
				}
			}
		}
		if begun != want {
			t.Errorf("%d nodes: %d tablets begin, want %d", nodes, begun, want)
		}
		for n, count := range incoming {
			if count > maxIncoming {
				t.Errorf("%d nodes: node %d gets %d replicas at once, at most %d may be", nodes, n, count, maxIncoming)
			}
		}
	}
}

func BenchmarkMake(b *testing.B) {
	for _, size := range []struct{ nodes, tablets int }{{10, 10_000}, {100, 100_000}} {
		s := largeState(size.nodes, size.tablets)
		b.Run(fmt.Sprintf("nodes=%d/tablets=%d", size.nodes, size.tablets), func(b *testing.B) {
			for b.Loop() {
				Make(s)
			}
		})
	}
}
