package idle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	nodes "github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/test/cluster"
)

// standing is the state of all replicas, summed over the nodes' reports.
type standing struct {
	replicas, leaders int
	most              int // leaders on one node
	// replicas that are not quiescent, except meta's, which the jobs of its leader read
	awake int
	moves uint64
}

// still reports whether all replicas exist, those of the meta tablet included, and are quiescent.
func (s standing) still(tablets, count int) bool {
	return s.replicas >= (tablets+1)*count && s.leaders*count == s.replicas && s.awake == 0
}

// stand collects the state from every node.
func stand(ctx context.Context, c *cluster.Cluster) (all standing, err error) {
	for _, p := range c.Nodes() {
		var status struct {
			Tablets []struct {
				Tablet struct {
					ID uint64 `json:"tablet_id"`
				}
				Leader, Quiescent bool
			}
			Placement struct{ Moves, Transfers json.Number }
		}
		body, err := p.Get(ctx, "/api/v1/status")
		if err != nil {
			return all, err
		}
		if err := json.Unmarshal(body, &status); err != nil {
			return all, err
		}
		leaders := 0
		for _, r := range status.Tablets {
			all.replicas++
			if r.Leader {
				leaders++
			}
			if !r.Quiescent && r.Tablet.ID != nodes.MetaTablet {
				all.awake++
			}
		}
		all.leaders += leaders
		all.most = max(all.most, leaders)
		for _, n := range []json.Number{status.Placement.Moves, status.Placement.Transfers} {
			v, _ := strconv.ParseUint(n.String(), 10, 64) // 0 is left out
			all.moves += v
		}
	}
	return all, nil
}

// measure prints the processor time of each process and of all together, in percent of one core,
// and returns the latter.
func measure(t *testing.T, c *cluster.Cluster, tablets int, during time.Duration) (total float64) {
	t.Helper()
	before, others, began := make([]time.Duration, len(c.Nodes())), machine(t), time.Now()
	for i, p := range c.Nodes() {
		before[i] = used(t, p)
	}
	wait(t, during)
	spent := time.Since(began)
	busy := machine(t) - others
	var each []string
	for i, p := range c.Nodes() {
		of := used(t, p) - before[i]
		busy -= of
		share := 100 * of.Seconds() / spent.Seconds()
		total += share
		each = append(each, fmt.Sprintf("%.2f%%", share))
	}
	t.Logf("%d tablets, %v: %s of a core, %.2f%% in all; everything else on the machine took %.0f%%",
		tablets, spent.Round(time.Second), strings.Join(each, " "), total,
		100*busy.Seconds()/spent.Seconds())
	for _, p := range c.Nodes() {
		t.Logf("  node %d: %s", p.Index, memory(t.Context(), p))
	}
	return total
}

func wait(t *testing.T, during time.Duration) {
	t.Helper()
	end := time.NewTimer(during)
	defer end.Stop()
	select {
	case <-end.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// used returns the processor time of a process.
func used(t *testing.T, p *cluster.Process) time.Duration {
	t.Helper()
	cpu, err := p.CPU()
	if err != nil {
		t.Fatal(err)
	}
	return cpu
}

// machine returns the processor time of all processes of the machine.
func machine(t *testing.T) time.Duration {
	t.Helper()
	cpu, err := cluster.MachineCPU()
	if err != nil {
		t.Fatal(err)
	}
	return cpu
}

// memory describes the memory of the process.
func memory(ctx context.Context, p *cluster.Process) string {
	names, err := p.Metrics(ctx)
	if err != nil {
		return err.Error()
	}
	const mib = 1 << 20
	return fmt.Sprintf("%.0f MiB resident, %.0f MiB of heap, %.0f MiB of stacks, %.0f goroutines",
		names["process_resident_memory_bytes"]/mib, names["go_memstats_heap_inuse_bytes"]/mib,
		names["go_memstats_stack_inuse_bytes"]/mib,
		names["go_goroutines"])
}

// takeProfiles has every process write its profiles.
func takeProfiles(t *testing.T, c *cluster.Cluster, during time.Duration) {
	t.Helper()
	tell := func(s syscall.Signal) {
		for _, p := range c.Nodes() {
			if err := syscall.Kill(p.PID(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	tell(syscall.SIGUSR1)
	wait(t, during)
	tell(syscall.SIGUSR2)
}
