package clusterscale

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/simtest"
)

// Whole clusters and their gossip in virtual time, to check the arithmetic of docs/operating/scale.md.
// Virtual time exists in tests only, so each simulation is a test of its package, run by a process.

// tabletsEach is the number of tablets of a simulated cluster for each node.
const tabletsEach = 2

func simulate(ctx context.Context, r *harness.Run) error {
	nodes, members, window := []int{10, 30, 100}, []int{10, 100, 300}, 20*time.Second
	if r.Smoke {
		return simulateGossip(ctx, r, members[:1]) // building the other test takes longer than a smoke run may
	}
	cluster := filepath.Join(r.Dir, "simtest.test")
	if err := compile(ctx, "./internal/simtest", cluster); err != nil {
		return err
	}
	for _, n := range nodes {
		var f simtest.LargeFigures
		err := runTest(ctx, r, cluster, "TestLarge", &f, "-nodes", strconv.Itoa(n),
			"-tablets", strconv.Itoa(tabletsEach*n), "-window", window.String(), "-seed", strconv.FormatUint(r.Seed, 10))
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		recordCluster(r, f)
	}
	r.Note("Simulated: real nodes, stores, Raft groups and scanners of one process, in virtual time over a simulated network, with %d tablets a node, "+
		"once placement has moved none for 10 s; %v without a move are counted. The simulation's own work grows with the pairs of nodes, hence at most %d.",
		tabletsEach, window, nodes[len(nodes)-1])
	r.Note("Fail-over: a tenth of the nodes is killed at once, those of one zone; until each tablet has accepted a write.")
	return simulateGossip(ctx, r, members)
}

func simulateGossip(ctx context.Context, r *harness.Run, members []int) error {
	gossip := filepath.Join(r.Dir, "gossip.test")
	if err := compile(ctx, "./cluster/gossip", gossip); err != nil {
		return err
	}
	for _, n := range members {
		var f struct {
			Packets, Streams float64
			Detected         time.Duration
		}
		if err := runTest(ctx, r, gossip, "TestSimulated", &f, "-members", strconv.Itoa(n)); err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
		row := fmt.Sprintf("%d members", n)
		const table = "gossip, bytes/s that a member sends"
		r.Value(table, row, "exchanges of the state, simulated", f.Streams)
		r.Value(table, row, "computed", exchanges(n))
		r.Ratio(table, row, f.Streams/exchanges(n), "")
		r.Value(table, row, "pings with their gossip", f.Packets)
		r.Value(table, row, "ms until all know a death", f.Detected.Seconds()*1000)
	}
	r.Note("Simulated gossip is memberlist with the nodes' intervals and metadata, without the nodes.")
	return nil
}

// recordCluster records what was simulated beside what docs/operating/scale.md computes.
func recordCluster(r *harness.Run, f simtest.LargeFigures) {
	s := size{f.Nodes, f.Tablets}
	n, tablets := float64(f.Nodes), float64(f.Tablets)
	// A leader asks the nodes of two other voters for support, every 200 ms.
	partners := min(n-1, 2*tablets/n)
	for _, c := range []struct {
		name, kind string
		computed   float64
	}{
		{"requests for liveness, per second", "support", 5 * n * partners},
		{"surveys of scanners, per second", "survey", 2 * n * (n - 1)},
		{"walks of other nodes' tablets, per second", "walk", tablets / max(60, tablets/(2*n)) * (n - 1) / n},
		// Placement asks every 5 s; the merger every 10 s, unless placement has asked in the last 2.5 s.
		{"statuses for placement and merges, per second", "node_status", (n - 1) * (1./5 + 1./10)},
	} {
		r.Value(c.name, s.String(), "simulated", f.Requests[c.kind])
		r.Value(c.name, s.String(), "computed, at rest", c.computed)
		r.Ratio(c.name, s.String(), f.Requests[c.kind]/c.computed, "")
	}
	const table = "simulated clusters"
	r.Value(table, s.String(), "requests to meta/s", f.Requests["meta"])
	r.Value(table, s.String(), "changes of replicas/s", f.Requests["change_replicas"])
	r.Value(table, s.String(), "Raft messages/s", f.Raft)
	r.Value(table, s.String(), "kB/s that a node sends", f.Bytes/1000/n)
	r.Value(table, s.String(), "s until all replicas exist", f.Spread.Seconds())
	r.Value(table, s.String(), "s until placement has rested for 10 s", f.Rested.Seconds())
	r.Value(table, s.String(), "s fail-over of a rack", f.Failover.Seconds())
}

// exchanges returns the bytes per second of one member's exchanges of the whole state: with one other
// member every 5 s, and beyond 32 members after ⌈log₂(members/16)⌉ times as long.
func exchanges(members int) float64 {
	const each, interval = 230, 5
	stretch := 1.0
	if members > 32 {
		stretch = math.Ceil(math.Log2(float64(members) / 16))
	}
	return 2 * each * float64(members) / (interval * stretch) // both ways
}

func compile(ctx context.Context, pkg, to string) error {
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", to, pkg)
	build.Dir = "../.."
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return nil
}

// runTest runs a test that writes its figures, and reads them.
func runTest(ctx context.Context, r *harness.Run, binary, name string, figures any, args ...string) error {
	file := filepath.Join(r.Dir, name+".json")
	args = append([]string{"-test.run", "^" + name + "$", "-figures", file}, args...)
	if text, err := exec.CommandContext(ctx, binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, text)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, figures)
}
