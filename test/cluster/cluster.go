package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/localcluster"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/test/disk"
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
	// memory limit of each node, in bytes, above which the kernel kills it; 0 means none. Needs
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
	*localcluster.Cluster
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
	local := localcluster.Config{
		Nodes: c.cfg.Nodes, Spare: c.cfg.Spare, Dir: c.cfg.Dir, Env: c.cfg.Env,
	}
	switch {
	case c.cfg.Hosts:
		if c.hosts, err = NewHosts(c.cfg.Nodes + c.cfg.Spare); err != nil {
			return err
		}
		local.Addr = func(i, offset int) string {
			return net.JoinHostPort(c.hosts.Addr(i), strconv.Itoa(7800+offset))
		}
	case c.cfg.Ports != nil:
		local.Addr = func(i, offset int) string { return ports.Local(c.cfg.Ports[i] + offset) }
	}
	if c.Cluster, err = localcluster.New(local); err != nil {
		return err
	}
	for i, node := range c.Cluster.Nodes() {
		p := &Process{Process: node, cluster: c}
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
const PortsEach = localcluster.PortsEach

// args returns a node's command line.
func (c *Cluster) args(p *Process) []string {
	args := p.Args()
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
	return c.Started(ctx)
}

// Dial connects to the founding nodes, through the first that answers.
func (c *Cluster) Dial(ctx context.Context) (*percolator.DB, error) {
	return percolator.Dial(ctx, c.Addrs(), c.ClientConfig())
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

// Close kills all running nodes and removes everything but the files.
func (c *Cluster) Close() error {
	var errs []error
	if c.Cluster != nil { // nil: New failed before
		errs = append(errs, c.Cluster.Close())
	}
	for _, p := range c.nodes {
		p.endTrace()
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
