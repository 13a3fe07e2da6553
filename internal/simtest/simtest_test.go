package simtest

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seedCount = flag.Int("seeds", 10, "number of seeds")
	onlyKinds = flag.String("kinds", "",
		"comma-separated kinds of events; empty: all")
	onlyLoads = flag.String("workloads", "",
		"comma-separated workloads; empty: chosen by the seed")
	nodes   = flag.Int("nodes", 0, "number of nodes; 0: 3, and 5 for every fourth seed")
	workers = flag.Int("workers", 0, "workers per workload; 0: the default")
	faults  = flag.Duration("faults", 0, "duration of the faults; 0: the default")
	gap     = flag.Duration("gap", 0, "maximum time between two faults; 0: the default")
	leases  = flag.String("leases", "", "on or off; empty: off for every fifth seed")
	delay   = flag.Duration("delay", 0,
		"maximum delay of messages without faults; 0: the default")
	history = flag.Duration("history", 0,
		"time for which old versions stay readable; 0: longer than the simulation")
	expect = flag.String("expect", "",
		"regular expression: run seeds until a failure matches, and fail if none does; other failures are only logged")
	showLog  = flag.Bool("log", false, "also print the log of a simulation that has not failed")
	patience = flag.Duration("patience", 10*time.Minute, "with -expect: limit in real time")
)

// TestSimulations runs whole clusters under faults. -seeds and -seed choose the seeds; a failing one
// prints its schedule. With -expect it searches for a violation in a deliberately broken build.
func TestSimulations(t *testing.T) {
	count := *seedCount
	if testing.Short() { // under the race detector
		count = min(count, 2)
	}
	if *expect != "" {
		hunt(t, regexp.MustCompile(*expect), uint64(count))
		return
	}
	for seed := *firstSeed; seed < *firstSeed+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, options(seed)) })
	}
}

// options returns the flags' options for a seed.
func options(seed uint64) Options {
	o := Options{
		Seed: seed, Nodes: *nodes, Workers: *workers, Faults: *faults, Gap: *gap, Delay: *delay,
		History: *history, NoObservers: *history != 0, // a run may last longer than that
	}
	if o.NoLeases = *leases == "off"; *leases == "" {
		o.NoLeases = seed%5 == 0
	}
	if o.Nodes == 0 {
		o.Nodes = 3
		if seed%4 == 0 {
			o.Nodes = 5
		}
	}
	if *onlyLoads != "" {
		o.Workloads = strings.Split(*onlyLoads, ",")
	}
	if *onlyKinds != "" {
		o.Shares = map[Kind]int{}
		for k := range strings.SplitSeq(*onlyKinds, ",") {
			o.Shares[Kind(k)] = 1
		}
	}
	return o
}

// hunt runs seeds until one fails as expected.
func hunt(t *testing.T, expected *regexp.Regexp, seeds uint64) {
	began := time.Now()
	for seed := *firstSeed; seed < *firstSeed+seeds && time.Since(began) < *patience; seed++ {
		var err error
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { err = Run(options(seed)).Err })
		})
		if err == nil {
			continue
		}
		if found := expected.FindString(err.Error()); found != "" {
			t.Logf("caught by seed %d after %v: %s", seed, time.Since(began).Round(time.Second),
				found)
			return
		}
		t.Logf("another failure, of seed %d: %v", seed, err)
	}
	t.Errorf("no failure matches %q", expected)
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
		if *showLog {
			t.Logf("log:\n%s", r.Log)
		}
	})
}

// TestOneNode runs a single node without faults.
func TestOneNode(t *testing.T) {
	simulate(t, Options{Seed: 1, Nodes: 1, Schedule: Schedule{}, Faults: 3e9})
}

// TestQuiet runs several nodes without faults.
func TestQuiet(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			simulate(t, Options{Seed: 1, Nodes: n, Schedule: Schedule{}, Faults: 3e9})
		})
	}
}

// TestOldMap checks that a client with newer descriptors than its node's makes progress. It once
// retried forever on that node, which had no reason to reread its map.
func TestOldMap(t *testing.T) {
	const ms = time.Millisecond
	simulate(t, Options{Seed: 4, Nodes: 5, Workloads: []string{"oracle", "register"},
		Schedule: Schedule{
			{At: 633 * ms, For: 1501 * ms, Kind: Lead, A: 0, B: 1},
			{At: 3505 * ms, For: 3228 * ms, Kind: Lead, A: 5, B: 2},
			{At: 4223 * ms, For: 380 * ms, Kind: Depose, A: 0, B: 2},
			{At: 7892 * ms, For: 2959 * ms, Kind: Lead, A: 7, B: 0},
			{At: 9579 * ms, For: 4750 * ms, Kind: Freeze, A: 0, B: 2},
			{At: 12221 * ms, For: 597 * ms, Kind: Stall, A: 4, B: 1},
		}})
}

// TestDrainOutlivesItsNode checks that a drain is cancelled although the node that received the
// request to drain has died. The simulation once retried forever on the dead process.
func TestDrainOutlivesItsNode(t *testing.T) {
	simulate(t, Options{Seed: 27, Nodes: 4, Faults: 6 * time.Second,
		Workloads: []string{"register"}, NoObservers: true, Schedule: Schedule{
			{At: time.Second, For: 2 * time.Second, Kind: Drain, A: 0, B: 2},
			{At: 2 * time.Second, For: 3 * time.Second, Kind: CrashLead, A: 0},
		}})
}

// TestFeed checks the feed of changes while its tablets split, merge, move and lose their leaders, and
// while commits are delayed.
func TestFeed(t *testing.T) {
	simulate(t, Options{Seed: *firstSeed, Nodes: 3, Faults: 6 * time.Second, NoObservers: true,
		Workloads: []string{"changes", "bank"}, Schedule: Schedule{
			{At: 500 * time.Millisecond, For: 2 * time.Second, Kind: Hesitate},
			{At: time.Second, For: time.Second, Kind: Split, A: 1, B: 1},
			{At: 2 * time.Second, For: time.Second, Kind: CrashLead, A: 2},
			{At: 3 * time.Second, For: time.Second, Kind: Merge, A: 1, B: 2},
			{At: 4 * time.Second, For: time.Second, Kind: Lead, A: 1, B: 1},
			{At: 5 * time.Second, For: time.Second, Kind: Isolate, A: 1},
		}})
}

// TestFeedHoldsHistory checks the feed of changes with subscribers that are dead for longer than
// history is kept for others: only the subscription's position holds it.
func TestFeedHoldsHistory(t *testing.T) {
	simulate(t, Options{Seed: *firstSeed, Nodes: 3, Faults: 8 * time.Second, NoObservers: true,
		Workloads: []string{"changes"}, History: time.Second, Schedule: Schedule{
			{At: 2 * time.Second, For: time.Second, Kind: CrashLead, A: 0},
			{At: 4 * time.Second, For: time.Second, Kind: CrashLead, A: 2},
			{At: 6 * time.Second, For: time.Second, Kind: Split, A: 1, B: 1},
		}})
}

// TestWaitsAndTimers checks WaitFor and timers while meta's leader dies and a node is partitioned.
func TestWaitsAndTimers(t *testing.T) {
	for _, name := range []string{"effects", "timers"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, Options{Seed: *firstSeed, Nodes: 3, Faults: 5 * time.Second,
				Workloads: []string{name}, Schedule: Schedule{
					{At: time.Second, For: 2 * time.Second, Kind: CrashLead, A: 0},
					{At: 4 * time.Second, For: time.Second, Kind: Isolate, A: 1},
				}})
		})
	}
}
