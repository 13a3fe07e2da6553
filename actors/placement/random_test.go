package placement

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestRandom: random clusters converge to a correct placement, whatever dies in between. SEEDS sets
// the number of clusters.
func TestRandom(t *testing.T) {
	seeds := uint64(500)
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		if t.Failed() {
			return
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { random(t, seed) })
	}
}

func random(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	zones := [][]string{nil, {"a", "b", "c"}, {"a", "a", "b"}}[rng.IntN(3)]
	w := newWorld(t, 1+rng.IntN(8), zones...)
	nodes := len(w.records)
	w.target, w.linger, w.slow = []int{1, 3, 5}[rng.IntN(3)], rng.IntN(3), 1+rng.IntN(3)
	for range 1 + rng.IntN(30) {
		voters := []uint64{}
		for _, n := range rng.Perm(nodes)[:oddFloor(1+rng.IntN(min(nodes, 5)))] {
			voters = append(voters, uint64(n)+1)
		}
		f := w.add(voters...)
		f.size, f.load = rng.Uint64N(200<<20), rng.Uint64N(5000)
	}
	p := newTest(t, w)
	for i := range rng.IntN(30) {
		w.disturb(rng, nodes)
		p.turn(t.Context(), start.Add(time.Duration(i)*time.Second))
		if w.failAt != 0 && w.ops >= w.failAt {
			w.restart()
			p = newTest(t, w)
		}
	}
	for id := range w.alive {
		w.alive[id], w.silent[id] = true, false
	}
	w.restart()
	turns := w.turns(p)
	holders := 0
	for _, r := range w.records {
		if r.State == pb.NodeState_NODE_STATE_ACTIVE {
			holders++
		}
	}
	want := oddFloor(min(w.target, holders))
	t.Logf("%d nodes, %d tablets, %d replicas: %d turns, %d operations", nodes, len(w.tablets),
		want, turns, len(w.sent))
	for _, r := range w.records {
		if r.State == pb.NodeState_NODE_STATE_DRAINING {
			return // some replicas could not be moved
		}
	}
	shrunk := slices.ContainsFunc(w.tablets, func(f *fakeTablet) bool {
		v, _ := f.on()
		return len(v) > want
	})
	if shrunk {
		return // there were more nodes before
	}
	w.checkVoters(want)
	if zones == nil {
		replicas, leaders := w.spread()
		w.checkEven("replicas", replicas, 0)
		w.checkEven("leaders", leaders, w.tablets[0].leader)
	}
}

// disturb injects an event on a node, or a crash of placement at one of its next operations.
func (w *world) disturb(rng *rand.Rand, nodes int) {
	id := uint64(rng.IntN(nodes)) + 1
	switch rng.IntN(12) {
	case 0:
		w.alive[id] = false
	case 1, 2:
		w.alive[id] = true
	case 3:
		w.silent[id] = !w.silent[id]
	case 4:
		w.now += int64(rng.IntN(400_000))
	case 5:
		if w.records[id].State == pb.NodeState_NODE_STATE_ACTIVE && rng.IntN(2) == 0 {
			w.records[id].State = pb.NodeState_NODE_STATE_DRAINING
		}
	case 6:
		if s := w.records[id].State; s == pb.NodeState_NODE_STATE_DRAINING ||
			s == pb.NodeState_NODE_STATE_DRAINED {
			w.records[id].State = pb.NodeState_NODE_STATE_ACTIVE
		}
	case 7, 8:
		w.failAt, w.after = w.ops+1+rng.IntN(20), rng.IntN(2) == 0
	case 9:
		f := w.tablets[rng.IntN(len(w.tablets))]
		w.orders = append(w.orders, &pb.MoveTabletRequest{
			TabletId: f.d.TabletId, FromNode: f.d.Replicas[0].NodeId, ToNode: id,
		})
	}
}

// TestCrashAnywhere: placement crashes at any operation, before or after it took effect, of a
// drain, a requested move and an upgrade. The next one finishes all of it.
func TestCrashAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		died := true
		for failAt := 1; died && !t.Failed(); failAt++ {
			w := newWorld(t, 5, "a", "b", "c")
			w.add(1)
			w.add(1, 2, 3)
			w.add(1, 2, 3)
			w.records[1].State = pb.NodeState_NODE_STATE_DRAINING
			w.orders = []*pb.MoveTabletRequest{{TabletId: 3, FromNode: 2, ToNode: 5}}
			w.failAt, w.after, w.linger, w.slow = failAt, after, 1, 2
			p := newTest(t, w)
			for i := 0; i < 40 && w.ops < failAt; i++ {
				p.turn(t.Context(), start.Add(time.Duration(i)*time.Minute))
			}
			if died = w.ops >= failAt; !died && failAt < 60 {
				t.Fatalf("everything was done in %d operations", failAt)
			}
			died = died && failAt < 150
			w.restart()
			w.turns(newTest(t, w))
			w.checkVoters(3)
			if w.records[1].State != pb.NodeState_NODE_STATE_DRAINED || len(w.orders) > 0 {
				t.Errorf("died at %d (after: %v): node 1 is %v, orders %v", failAt, after,
					w.records[1].State, w.orders)
			}
		}
	}
}
