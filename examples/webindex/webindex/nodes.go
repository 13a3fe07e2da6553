package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/percolator-go/percolator/test/cluster"
)

// The processes of a cluster on this machine. test/cluster runs them; this file has what
// the command asks of them besides.

// Where the nodes of a cluster listen, unless told otherwise: the ports of the documentation.
const (
	firstPort = 7800
	portStep  = 100
)

const (
	readyTimeout = time.Minute
	drainTimeout = 40 * time.Second
)

// newNodes chooses addresses for so many nodes that begin a cluster and for those that
// are added later. It starts nothing.
func newNodes(dir string, first, added int, documented bool) (*cluster.Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfg := cluster.Config{
		Nodes: first, Spare: added, Dir: dir, Binary: self,
		Args: []string{"--observer-workers", strconv.Itoa(workers), "--log-level", "warn"},
	}
	if documented {
		cfg.Ports = documentedPorts(first + added)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return cluster.New(cfg)
}

// documentedPorts are those of the documentation; nil if one of them is taken.
func documentedPorts(count int) (ports []int) {
	for i := range count {
		for offset := range cluster.PortsEach {
			port := strconv.Itoa(firstPort + i*portStep + offset)
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				return nil
			}
			_ = l.Close()
		}
		ports = append(ports, firstPort+i*portStep)
	}
	return ports
}

// nodeName is how the output calls a node; its directory and its log have the name too.
func nodeName(p *cluster.Process) string { return fmt.Sprintf("node-%d", p.Index) }

// startNode starts a node, on the directory that it had if it has been running before, and
// waits until it serves.
func startNode(ctx context.Context, c *cluster.Cluster, p *cluster.Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return errors.Join(c.Ready(ctx), died(p))
}

// died is why a node has ended by itself, with the end of its log; nil if it has not.
func died(p *cluster.Process) error {
	err := p.Died()
	if err == nil {
		return nil
	}
	text, _ := os.ReadFile(p.Log())
	return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):])
}

// runs sums up the observers' counters of the nodes that answer: a node that was killed
// has begun to count anew.
func runs(ctx context.Context, c *cluster.Cluster) []observerRuns {
	var sum []observerRuns
	at := map[string]int{}
	for _, p := range c.Nodes() {
		observers, err := observersOf(ctx, p)
		if err != nil {
			continue
		}
		for _, o := range observers {
			i, ok := at[o.Name]
			if !ok {
				i = len(sum)
				at[o.Name], sum = i, append(sum, observerRuns{name: o.Name})
			}
			s := &sum[i]
			s.runs, s.commits, s.conflicts = s.runs+o.Runs, s.commits+o.Commits,
				s.conflicts+o.Conflicts
			s.failures, s.parked = s.failures+o.Failures, s.parked+o.Parked
		}
	}
	return sum
}

// counters are one observer's, as /api/v1/status has them.
type counters struct {
	Name                                       string
	Runs, Commits, Conflicts, Failures, Parked uint64
}

// observersOf asks a node's console for its observers.
func observersOf(ctx context.Context, p *cluster.Process) ([]counters, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+p.HTTP+"/api/v1/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var status struct{ Observers []counters }
	err = json.NewDecoder(resp.Body).Decode(&status)
	return status.Observers, err
}
