//go:build linux

package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/ports"
)

// Config configures a cluster.
type Config struct {
	Nodes int    // number of founding nodes
	Spare int    // number of nodes that are added later
	Dir   string // directory of all logs and stores
	// Addr returns the address of a node's port with an offset from 0 to PortsEach-1. Defaults to
	// free ports of loopback.
	Addr   func(node, offset int) string
	Binary string   // path of percolator
	Args   []string // additional arguments of start
	Env    []string // additional environment of the nodes, each key=value
}

// PortsEach is the number of ports of a node: for clients, nodes, gossip and HTTP.
const PortsEach = 4

// Cluster is a set of node processes.
type Cluster struct {
	cfg   Config
	nodes []*Process
}

// New chooses addresses and directories, and starts no node.
func New(cfg Config) (*Cluster, error) {
	count := cfg.Nodes + cfg.Spare
	if cfg.Addr == nil {
		base, err := ports.Run(count * PortsEach)
		if err != nil {
			return nil, err
		}
		cfg.Addr = func(node, offset int) string {
			return ports.Local(base + node*PortsEach + offset)
		}
	}
	c := &Cluster{cfg: cfg}
	for i := range count {
		c.nodes = append(c.nodes, &Process{
			Index: i, Listen: cfg.Addr(i, 0), HTTP: cfg.Addr(i, PortsEach-1),
			Dir:      filepath.Join(cfg.Dir, fmt.Sprintf("node-%d", i)),
			Founding: i < cfg.Nodes, cluster: c,
		})
	}
	return c, nil
}

// Node returns the process with an index: founding nodes first, then the spare ones.
func (c *Cluster) Node(i int) *Process { return c.nodes[i] }

// Nodes returns all processes, the spare ones included.
func (c *Cluster) Nodes() []*Process { return c.nodes }

// Start starts the founding nodes and waits until all are ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, p := range c.nodes[:c.cfg.Nodes] {
		if err := p.Start(); err != nil {
			return err
		}
	}
	return c.Started(ctx)
}

// Started waits until every running node is ready, and fails if a founding node has ended.
func (c *Cluster) Started(ctx context.Context) error {
	if err := c.Ready(ctx); err != nil {
		return err
	}
	for _, p := range c.nodes[:c.cfg.Nodes] {
		if !p.Running() {
			return fmt.Errorf("%w; see %s", cmp.Or(p.Died(), ErrNotRunning), p.Log())
		}
	}
	return nil
}

// Ready waits until every running node reports that it is ready.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, p := range c.nodes {
		for p.Running() {
			err := p.Ready(ctx)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("localcluster: node %d is not ready: %w", p.Index, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// Dial connects to the first founding node that answers, without TLS; the others serve for
// failover.
func (c *Cluster) Dial(ctx context.Context) (*percolator.DB, error) {
	return percolator.Dial(ctx, c.Addrs(), percolator.ClientConfig{Insecure: true})
}

// Addrs returns the client addresses of all founding nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, c.cfg.Nodes)
	for i := range addrs {
		addrs[i] = c.nodes[i].Listen
	}
	return addrs
}

// Terminate sends SIGTERM to all running nodes at once. It kills those that have not ended in time,
// and reports them, those with another exit code than 0, and those that had ended before by
// themselves.
func (c *Cluster) Terminate(within time.Duration) error {
	errs := make([]error, len(c.nodes))
	var ending sync.WaitGroup
	for i, p := range c.nodes {
		if !p.Running() {
			errs[i] = p.Died()
			continue
		}
		ending.Go(func() { errs[i] = p.Terminate(within) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// Close kills all running nodes. Their files stay.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range c.nodes {
		if p.Running() {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}
