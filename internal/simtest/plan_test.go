package simtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestScheduleIsTheSeeds checks that a seed determines the schedule, that seeds differ, and that many
// seeds contain every kind of event.
func TestScheduleIsTheSeeds(t *testing.T) {
	seen := map[Kind]bool{}
	for seed := range uint64(50) {
		a, b := plan(seed, 3, defaultFaults, defaultGap, everything),
			plan(seed, 3, defaultFaults, defaultGap, everything)
		if a.String() != b.String() {
			t.Fatalf("seed %d:\n%v\n%v", seed, a, b)
		}
		if a.String() == plan(seed+1, 3, defaultFaults, defaultGap, everything).String() {
			t.Errorf("seeds %d and %d have the same schedule", seed, seed+1)
		}
		for i, e := range a {
			seen[e.Kind] = true
			if e.At >= defaultFaults || e.For <= 0 || i > 0 && e.At < a[i-1].At || e.A == e.B &&
				e.Kind == OneWay {
				t.Errorf("seed %d: %v", seed, e)
			}
		}
	}
	for _, k := range kinds {
		if !seen[k] || everything[k] == 0 {
			t.Errorf("%s never happens", k)
		}
	}
}

// TestGossip checks that a death is reported after the delay and not before, that the next incarnation
// is reported as soon as it communicates, and that a node that was only silent reappears as the same
// incarnation.
func TestGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(1, 0)
		g := newGossip(n, time.Second)
		done := make(chan struct{})
		ended := make(chan struct{})
		go func() { defer close(ended); g.run(done) }()
		first := cluster.Member{NodeID: 7, Incarnation: 1}
		a := g.join(0, cluster.Member{NodeID: 5, Incarnation: 1})
		g.join(1, first)
		expect := func(after time.Duration, alive, dead bool) {
			t.Helper()
			<-time.After(after)
			_, known := a.Member(7)
			if known != alive || a.Dead(mvcc.Worker{Node: 7, Incarnation: 1}) != dead {
				t.Errorf("alive %v, dead %v", known, !dead)
			}
		}
		expect(2*detectPause, true, false)
		n.set(func(n *network) { n.cut[[2]int{1, 0}] = true })
		expect(500*time.Millisecond, true, false)
		expect(time.Second, false, true)
		n.heal()
		expect(2*detectPause, true, false)
		n.set(func(n *network) { n.down[1] = true })
		g.leave(1)
		expect(2*time.Second, false, true)
		g.join(1, cluster.Member{NodeID: 7, Incarnation: 2})
		n.set(func(n *network) { delete(n.down, 1) })
		expect(2*detectPause, true, true)
		close(done)
		<-ended
	})
}

// TestWeather checks that fair weather keeps the order and loses nothing, that a cut loses everything
// in one direction, and that in any weather some duplicates arrive late.
func TestWeather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(1, 0)
		n.index[5], n.index[7] = 0, 1
		last, late := time.Duration(0), 0
		for range 1000 {
			copies := n.carry(5, 7, &wire.PeerBatch{})
			if len(copies) == 0 || copies[0] <= last || copies[0] > last+fair.Delay {
				t.Fatalf("after %v and then %v", last, copies)
			}
			last = copies[0]
			for _, second := range copies[1:] {
				if late++; second-last < minLate || second-last > maxLate {
					t.Errorf("a duplicate %v after the original", second-last)
				}
			}
		}
		if late == 0 || late > 50 {
			t.Errorf("%d duplicates of 1000", late)
		}
		n.set(func(n *network) { n.cut[[2]int{0, 1}] = true })
		if len(n.carry(5, 7, &wire.PeerBatch{})) != 0 {
			t.Error("a batch crossed a cut")
		}
		if len(n.carry(7, 5, &wire.PeerBatch{})) == 0 {
			t.Error("the other direction is cut too")
		}
		n.heal()
		n.set(func(n *network) { n.weather = weather{Drop: 1, Delay: time.Second} })
		if len(n.carry(5, 7, &wire.PeerBatch{})) != 0 {
			t.Error("a batch arrived although all are dropped")
		}
	})
}
