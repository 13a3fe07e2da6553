package idle_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	nodes "github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/test/cluster"
)

// standing is what the nodes say of all replicas together.
type standing struct {
	replicas, leaders int
	most              int // leaders on one node
	// replicas that are ticked, meta's apart: what looks after the tablets reads meta
	awake int
	moves uint64
}

// still reports whether there is all there should be, and nothing is ticked. Meta is
// there before any other tablet.
func (s standing) still(tablets, count int) bool {
	return s.replicas >= (tablets+1)*count && s.leaders*count == s.replicas && s.awake == 0
}

// stand asks every node.
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
		body, err := get(ctx, "http://"+p.HTTP+"/api/v1/status")
		if err != nil {
			return all, err
		}
		if err := json.Unmarshal([]byte(body), &status); err != nil {
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

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var text strings.Builder
	_, err = bufio.NewReader(resp.Body).WriteTo(&text)
	return text.String(), err
}

// measure prints what each process and all of them take of one core, in percent, and
// returns the latter.
func measure(t *testing.T, c *cluster.Cluster, tablets int, during time.Duration) (total float64) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	before, others, began := make([]time.Duration, len(c.Nodes())), machine(t), time.Now()
	for i, p := range c.Nodes() {
		before[i] = used(t, p.PID())
	}
	wait(t, during)
	spent := time.Since(began)
	busy := machine(t) - others
	var each []string
	for i, p := range c.Nodes() {
		of := used(t, p.PID()) - before[i]
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

// userHZ is in which part of a second /proc counts: 100 everywhere that Go runs on.
const userHZ = 100

// used is the processor time that a process has taken, of itself and for it.
func used(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // the third and following ones of proc(5)
	return sum(t, fields[11:13])
}

// machine is the processor time that was taken by anything at all.
func machine(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal
	fields := strings.Fields(first)
	return sum(t, fields[1:4]) + sum(t, fields[6:min(9, len(fields))]) // steal: it was wanted
}

func sum(t *testing.T, fields []string) time.Duration {
	t.Helper()
	ticks := int64(0)
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ
}

// memory is what the process says of its memory.
func memory(ctx context.Context, p *cluster.Process) string {
	text, err := get(ctx, "http://"+p.HTTP+"/metrics")
	if err != nil {
		return err.Error()
	}
	names := map[string]float64{
		"process_resident_memory_bytes": 0, "go_memstats_heap_inuse_bytes": 0,
		"go_memstats_stack_inuse_bytes": 0, "go_goroutines": 0,
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, ok := names[name]; ok {
			names[name], _ = strconv.ParseFloat(value, 64)
		}
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
