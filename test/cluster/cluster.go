package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/test/disk"
	"github.com/percolator-go/percolator/test/ports"
)

// Config configures a cluster.
type Config struct {
	Nodes int     // number of founding nodes
	Spare int     // number of hosts for nodes that are added later
	Ports []int   // of each node, the first of four on loopback; nil: free ports
	Dir   string  // directory of all logs, stores and disk images
	Hosts bool    // run each node in a network namespace of its own; needs root
	Disks int64   // bytes of each node's own disk, whose power can fail; 0: directories under Dir
	Zones int     // label nodes zone=z0, z1, … in turn; 0: no labels
	TLS   bool    // generate certificates and use them; otherwise --insecure
	CPUs  float64 // CPU quota of each node; 0: none
	// memory limit of each node, in bytes, above which the kernel kills it; 0: none. Needs
	// root
	Memory int64
	// SyncDelay is added to every sync of each node, from its start. Needs strace.
	SyncDelay time.Duration
	Args      []string // additional arguments of start
	Env       []string // additional environment of the nodes, each key=value
	Binary    string   // path of percolator; empty: this program, which calls Main
	Client    percolator.ClientConfig
}

// Cluster is a set of node processes.
type Cluster struct {
	cfg   Config
	hosts *Hosts
	nodes []*Process

	clientCerts string
}

// New creates hosts, directories and disks, and starts no node.
func New(cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) prepare() (err error) {
	count := c.cfg.Nodes + c.cfg.Spare
	if c.cfg.Hosts {
		if c.hosts, err = NewHosts(count); err != nil {
			return err
		}
	} else if c.cfg.Ports == nil {
		base, err := ports.Run(count * PortsEach)
		if err != nil {
			return err
		}
		for i := range count {
			c.cfg.Ports = append(c.cfg.Ports, base+i*PortsEach)
		}
	}
	for i := range count {
		p := &Process{
			cluster: c, Index: i, Dir: filepath.Join(c.cfg.Dir, fmt.Sprintf("node-%d", i)),
		}
		p.Listen, p.HTTP = c.addr(i, 0), c.addr(i, PortsEach-1)
		c.nodes = append(c.nodes, p)
		if c.cfg.Disks == 0 {
			continue
		}
		if p.Disk, err = disk.Make(filepath.Join(c.cfg.Dir, fmt.Sprintf("disk-%d", i)),
			c.cfg.Disks); err != nil {
			return err
		}
		p.Dir = filepath.Join(p.Disk.Dir(), "node")
	}
	if c.cfg.TLS {
		return c.makeCerts()
	}
	return nil
}

// PortsEach is the number of ports of a node: for clients, nodes, gossip and HTTP.
const PortsEach = 4

func (c *Cluster) addr(i, offset int) string {
	if c.hosts != nil {
		return net.JoinHostPort(c.hosts.Addr(i), strconv.Itoa(7800+offset))
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.cfg.Ports[i]+offset))
}

// args returns a node's command line.
func (c *Cluster) args(p *Process) []string {
	args := []string{"start", "--dir", p.Dir, "--listen", p.Listen, "--http", p.HTTP}
	if p.Index < c.cfg.Nodes && c.cfg.Nodes > 1 && !p.wiped {
		args = append(args, "--expect", strconv.Itoa(c.cfg.Nodes))
	}
	for _, other := range c.nodes[:max(c.cfg.Nodes, 1)] {
		if other != p {
			args = append(args, "--join", other.Listen)
		}
	}
	if c.cfg.Zones > 0 {
		args = append(args, "--labels", fmt.Sprintf("zone=z%d", p.Index%c.cfg.Zones))
	}
	if c.cfg.TLS {
		args = append(args, "--certs", p.certs)
	} else {
		args = append(args, "--insecure")
		if c.hosts != nil {
			args = append(args, "--insecure-force")
		}
	}
	if c.hosts != nil {
		args = append(args, "--insecure-http")
	}
	return append(args, c.cfg.Args...)
}

// Node returns the process with an index: founding nodes first, then the spare ones.
func (c *Cluster) Node(i int) *Process { return c.nodes[i] }

// Nodes returns all processes, the spare ones included.
func (c *Cluster) Nodes() []*Process { return c.nodes }

// Hosts returns the network, or nil on loopback.
func (c *Cluster) Hosts() *Hosts { return c.hosts }

// Start starts the founding nodes and waits until all are ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, p := range c.nodes[:c.cfg.Nodes] {
		if err := p.Start(); err != nil {
			return err
		}
	}
	if err := c.Ready(ctx); err != nil {
		return err
	}
	for _, p := range c.nodes[:c.cfg.Nodes] {
		if !p.Running() {
			return fmt.Errorf("cluster: node %d has ended: %w; see %s", p.Index, p.err, p.Log())
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
				return fmt.Errorf("cluster: node %d is not ready: %w", p.Index, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// Ready asks the node's /readyz once.
func (p *Process) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := p.Get(ctx, "/readyz")
	return err
}

// Dial connects to all founding nodes.
func (c *Cluster) Dial(ctx context.Context) (*percolator.DB, error) {
	return percolator.Dial(ctx, c.Addrs(), c.ClientConfig())
}

// Addrs returns the client addresses of all founding nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, c.cfg.Nodes)
	for i := range addrs {
		addrs[i] = c.nodes[i].Listen
	}
	return addrs
}

// ClientConfig returns the configuration that Dial uses.
func (c *Cluster) ClientConfig() percolator.ClientConfig {
	cfg := c.cfg.Client
	if cfg.Insecure = !c.cfg.TLS; c.cfg.TLS {
		cfg.CAFile = filepath.Join(c.clientCerts, certs.CACert)
		cfg.CertFile, cfg.KeyFile = filepath.Join(c.clientCerts, certs.ClientCert),
			filepath.Join(c.clientCerts, certs.ClientKey)
	}
	return cfg
}

// Terminate sends SIGTERM to all running nodes at once. It reports those that did not exit with
// code 0 in time, or had ended before.
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

// Close kills all running nodes and removes everything but the files.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range c.nodes {
		if p.Running() {
			errs = append(errs, p.Kill())
		}
		if p.Disk != nil {
			errs = append(errs, p.Disk.Unmount())
		}
		errs = append(errs, removeGroup(p))
	}
	if c.hosts != nil {
		errs = append(errs, c.hosts.Close())
	}
	return errors.Join(errs...)
}
