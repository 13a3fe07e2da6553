package simtest

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seedCount = flag.Int("seeds", 10, "how many seeds")
	onlyKinds = flag.String("kinds", "", "the only kinds of events, with commas between; empty: all")
	onlyLoads = flag.String("workloads", "", "the only workloads, with commas between; empty: some, by the seed")
	nodes     = flag.Int("nodes", 0, "how many nodes; 0: 3, and 5 for every fourth seed")
)

// TestSimulations runs whole clusters under faults. -seeds and -seed choose which; a failing one prints its schedule.
func TestSimulations(t *testing.T) {
	count := *seedCount
	if testing.Short() { // under the race detector
		count = min(count, 2)
	}
	for seed := *firstSeed; seed < *firstSeed+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := *nodes
			if n == 0 {
				n = 3
				if seed%4 == 0 {
					n = 5
				}
			}
			o := Options{Seed: seed, Nodes: n}
			if *onlyLoads != "" {
				o.Workloads = strings.Split(*onlyLoads, ",")
			}
			if *onlyKinds != "" {
				o.Shares = map[Kind]int{}
				for k := range strings.SplitSeq(*onlyKinds, ",") {
					o.Shares[Kind(k)] = 1
				}
			}
			simulate(t, o)
		})
	}
}

func simulate(t *testing.T, o Options) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := Run(o)
		if r.Err != nil {
			t.Errorf("seed %d: %v\n%v\nlog:\n%s", o.Seed, r.Err, r, r.Log)
			return
		}
		t.Logf("seed %d: %v", o.Seed, r)
	})
}

// TestOneNode: without other nodes and faults, everything is kept as well.
func TestOneNode(t *testing.T) {
	simulate(t, Options{Seed: 1, Nodes: 1, Schedule: Schedule{}, Faults: 3e9})
}

// TestQuiet: several nodes without faults.
func TestQuiet(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { simulate(t, Options{Seed: 1, Nodes: n, Schedule: Schedule{}, Faults: 3e9}) })
	}
}

// TestOldMap: a client that knows newer descriptors than the node it talks to still gets on; it once asked that node for
// ever, which had no reason to read its map again.
func TestOldMap(t *testing.T) {
	simulate(t, Options{
		Seed: 4, Nodes: 5, Workloads: []string{"oracle", "register"}, Shares: map[Kind]int{Freeze: 1, Depose: 1, Lead: 1, Stall: 1},
	})
}

// TestDrainOutlivesItsNode: a node is taken back although the one that was asked to drain it has died; the simulation once
// asked the dead process for ever.
func TestDrainOutlivesItsNode(t *testing.T) {
	simulate(t, Options{Seed: 27, Nodes: 4, Faults: 6 * time.Second, Workloads: []string{"register"}, NoObservers: true, Schedule: Schedule{
		{At: time.Second, For: 2 * time.Second, Kind: Drain, A: 0, B: 2},
		{At: 2 * time.Second, For: 3 * time.Second, Kind: CrashLead, A: 0},
	}})
}
