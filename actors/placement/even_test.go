package placement

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// bytesOn returns the bytes of the replicas on each node, and the largest replica.
func (w *world) bytesOn() (on map[uint64]float64, largest float64) {
	on = map[uint64]float64{}
	for _, f := range w.tablets {
		for _, r := range f.d.Replicas {
			on[r.NodeId] += float64(f.size)
		}
		largest = max(largest, float64(f.size))
	}
	return on, largest
}

// checkBytes: each node is within a fifth, or one tablet, of the mean. Negligible sizes are not
// checked.
func (w *world) checkBytes() {
	w.t.Helper()
	on, largest := w.bytesOn()
	sum, nodes := 0.0, 0.0
	for id, r := range w.records {
		if w.alive[id] && r.State == pb.NodeState_NODE_STATE_ACTIVE {
			sum, nodes = sum+on[id], nodes+1
		}
	}
	mean := sum / nodes
	for id, r := range w.records {
		off := math.Abs(on[id] - mean)
		if w.alive[id] && r.State == pb.NodeState_NODE_STATE_ACTIVE &&
			off > max(mean/5, largest, minSize/5) {
			w.t.Errorf("node %d has %.0f MiB of a mean of %.0f, the largest tablet %.0f: %v", id,
				on[id]/(1<<20), mean/(1<<20), largest/(1<<20), on)
		}
	}
}

// moves returns the number of replicas added by operations from the n-th on.
func (w *world) moves(from int) (n int) {
	for _, s := range w.sent[from:] {
		if strings.Contains(s, "ADD_LEARNER") {
			n++
		}
	}
	return n
}

// sizes draws the bytes of a tablet from one of these distributions: equal, uniform, many small
// with some large ones, a few large ones.
var sizes = []func(rng *rand.Rand) uint64{
	func(*rand.Rand) uint64 { return 48 << 20 },
	func(rng *rand.Rand) uint64 { return rng.Uint64N(96 << 20) },
	func(rng *rand.Rand) uint64 {
		if rng.IntN(8) > 0 {
			return rng.Uint64N(64 << 10)
		}
		return 60<<20 + rng.Uint64N(36<<20)
	},
	func(rng *rand.Rand) uint64 { return uint64(math.Exp(rng.Float64()*10) * 4096) },
	func(rng *rand.Rand) uint64 { return 48<<20 + rng.Uint64N(48<<20) },
}

// TestEvenBytes: from any placement, the nodes' bytes and leaders converge to within a fifth, or
// one tablet, of the mean, with hardly more moves than there are replicas; then nothing moves, also
// when all sizes change a little. PLACEMENTS=n sets the number of clusters.
func TestEvenBytes(t *testing.T) {
	seeds := uint64(80)
	if testing.Short() {
		seeds = 20
	}
	if text := os.Getenv("PLACEMENTS"); text != "" {
		var err error
		if seeds, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("PLACEMENTS: %v", err)
		}
	}
	for seed := range seeds {
		if t.Failed() {
			return
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			evenBytes(t, rand.New(rand.NewPCG(seed, 11)))
		})
	}
}

func evenBytes(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, 3+rng.IntN(6))
	nodes := len(w.records)
	w.target = []int{1, 3}[rng.IntN(2)]
	first := w.target + rng.IntN(nodes-w.target+1) // all replicas are there; the other nodes have just joined
	draw := sizes[rng.IntN(len(sizes))]
	for range 10 + rng.IntN(150) {
		voters := []uint64{}
		for _, n := range rng.Perm(first)[:w.target] {
			voters = append(voters, uint64(n)+1)
		}
		f := w.add(voters...)
		f.size, f.load = draw(rng), rng.Uint64N(100)
	}
	p := newTest(t, w)
	turns, replicas := w.turns(p), len(w.tablets)*w.target
	t.Logf("%d nodes, %d replicas: %d moves in %d turns", nodes, replicas, w.moves(0), turns)
	if w.moves(0) > replicas+replicas/4 {
		t.Errorf("%d moves of %d replicas", w.moves(0), replicas)
	}
	w.checkVoters(w.target)
	w.checkBytes()
	on, leaders := w.spread()
	mean := replicas / nodes
	for id := range w.records { // where large tablets prevent both, bytes come first
		if off := max(on[id]-mean, mean-on[id]); off > max(2, mean/2) {
			t.Errorf("node %d has %d replicas of a mean of %d: %v", id, on[id], mean, on)
		}
	}
	if w.target > 1 {
		w.checkEven("leaders", leaders, w.tablets[0].leader)
	}

	rest := len(w.sent)
	for i := range 40 {
		p.turn(context.Background(), start.Add(time.Duration(turns+i)*time.Minute))
		if i < 10 && len(w.sent) > rest {
			t.Fatalf("it does not converge: %v", w.sent[rest:])
		}
		for _, f := range w.tablets {
			if i >= 10 {
				f.size += uint64(float64(f.size) * 0.01 * (rng.Float64() - 0.5))
			}
		}
	}
	if n := w.moves(rest); n > 4+replicas/20 {
		t.Errorf("sizes change by 0.5%% each minute, and in half an hour %d replicas of %d are moved: %v", n, replicas, w.sent[rest:])
	}
}
