package simtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
)

// Limits of a cluster.
const (
	maxNodes = 1 << 10
	memTable = 8 << 20
	lockTTL  = 3 * time.Second
	maxSkew  = 2 * time.Second // between a node's clock and the first node's
)

// Config configures a simulated cluster.
type Config struct {
	Seed  uint64
	Nodes int
	// Observers are linked in every node.
	Observers func(*percolator.Registry)
	// Tune changes the nodes' configuration.
	Tune func(*node.Config)
	// Detect is the silence after which a node is reported dead; 0 means between 800 ms and 2.5 s,
	// by the seed.
	Detect time.Duration
	// Drift is the maximum difference between the speeds of two nodes' clocks. Defaults to nearly
	// liveness.MaxDrift.
	Drift float64
	// Delay is the maximum delay of a batch between nodes, and of a client's messages, without
	// faults. Defaults to 2 ms.
	Delay time.Duration
}

// Cluster is a set of nodes and the simulated network between them. It must be created, used and
// closed in one bubble of testing/synctest.
type Cluster struct {
	cfg      Config
	seed     uint64
	began    time.Time
	network  *network
	gossip   *gossip
	contacts *contacts
	log      *logTail
	done     chan struct{}
	running  sync.WaitGroup
	events   sync.WaitGroup // running events of the schedule
	over     atomic.Bool    // no more processes are started

	mu       sync.Mutex
	clients  []*Client
	fresher  int // number of calls of fresh
	machines []*machine
	errs     []error
}

// New starts a cluster and returns when all its nodes serve. The first founds it, the others join.
func New(cfg Config) (*Cluster, error) {
	c := &Cluster{
		cfg: cfg, seed: cfg.Seed, began: time.Now(), network: newNetwork(cfg.Seed, cfg.Delay),
		done: make(chan struct{}),
	}
	c.log = &logTail{began: c.began}
	c.cfg.Drift = cmp.Or(cfg.Drift, 0.95*liveness.MaxDrift)
	cfg.Detect = cmp.Or(cfg.Detect, 800*time.Millisecond+time.Duration(cfg.Seed%18)*100*time.Millisecond)
	c.gossip, c.contacts = newGossip(c.network, cfg.Detect), newDoors(c.network)
	c.running.Go(func() { c.gossip.run(c.done) })
	for range cfg.Nodes {
		m, err := c.add()
		if err == nil {
			err = m.start()
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// add adds a machine for one more node.
func (c *Cluster) add() (*machine, error) {
	st, err := openStore()
	if err != nil {
		return nil, fmt.Errorf("simtest: open a store: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &machine{c: c, index: len(c.machines), turn: make(chan struct{}, 1)}
	m.store.Store(st)
	m.speed = 1
	if m.index > 0 {
		rng := rand.New(rand.NewPCG(c.seed, 50+uint64(m.index)))
		m.skew = between(rng, -maxSkew, maxSkew)
		m.speed = 1 + c.cfg.Drift*(rng.Float64()-0.5)
	}
	if m.index >= maxNodes {
		return nil, errors.Join(errors.New("simtest: too many nodes"), st.Close())
	}
	c.machines = append(c.machines, m)
	return m, nil
}

// openStore opens a new machine's store.
func openStore() (*store.Store, error) {
	return store.Open(store.Options{InMemory: true, Crashes: true, MemTableSize: memTable})
}

// list returns all machines.
func (c *Cluster) list() []*machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.machines)
}

// config returns a node's configuration.
func (c *Cluster) config(index int) node.Config {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = addressOf(index), "", true, true
	cfg.LockTTL, cfg.Logger, cfg.Observers = lockTTL, c.logger("node", index), c.cfg.Observers
	cfg.Scanners, cfg.ObserverWorkers = 1, 4
	// only the schedule splits tablets
	cfg.Splits.Off = true
	// these addresses are mere names: no port is bound
	cfg.Peer, cfg.Gossip = addressOf(index+maxNodes), addressOf(index+2*maxNodes)
	if index > 0 {
		cfg.Join = []string{addressOf(0), addressOf(1), addressOf(2)}
		cfg.Join = slices.DeleteFunc(cfg.Join, func(a string) bool { return a == cfg.Listen })
	}
	if c.cfg.Tune != nil {
		c.cfg.Tune(&cfg)
	}
	return cfg
}

// fail records a violation.
func (c *Cluster) fail(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, fmt.Errorf("at %v: %w", time.Since(c.began), err))
}

// logf adds a line to the log that a failed simulation prints.
func (c *Cluster) logf(format string, args ...any) { c.log.add(fmt.Sprintf(format, args...)) }

// leader returns the node that by its own status leads the n-th tablet, in the order of tablet ids,
// or nil.
func (c *Cluster) leader(ctx context.Context, n int) (m *machine, tablet *pb.TabletDescriptor) {
	type led struct {
		m *machine
		s *pb.StatusResponse
	}
	byID := map[uint64]led{}
	var ids []uint64
	for _, m := range c.list() {
		l := m.up()
		if l == nil {
			continue
		}
		status, err := l.transport.NodeStatus(ctx)
		if err != nil {
			continue
		}
		for _, s := range status.Tablets {
			id := s.GetTablet().GetTabletId()
			before, known := byID[id]
			if !known {
				ids = append(ids, id)
			}
			if !known || s.Leader && (!before.s.Leader || s.Term > before.s.Term) {
				byID[id] = led{m, s}
			}
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	found := byID[ids[n%len(ids)]]
	if !found.s.Leader {
		return nil, found.s.Tablet
	}
	return found.m, found.s.Tablet
}

// leftoverTime is the time for which goroutines of libraries outlive their owners: protoactor's dead
// letters wait 1 s for the end of their throttling. Time in a bubble ends with its main goroutine.
const leftoverTime = 2 * time.Second

// Close stops all nodes. Some may be down already.
func (c *Cluster) Close() error {
	c.mu.Lock()
	clients := slices.Clone(c.clients)
	c.mu.Unlock()
	for _, t := range clients {
		t.Die()
	}
	var errs []error
	for _, t := range clients {
		errs = append(errs, t.client.Close())
	}
	for _, m := range slices.Backward(c.list()) {
		errs = append(errs, m.stop())
	}
	close(c.done)
	c.running.Wait()
	sleep(context.Background(), leftoverTime)
	for _, m := range c.list() {
		errs = append(errs, m.store.Load().Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(append(errs, c.errs...)...)
}

func (c *Cluster) logger(what string, index int) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{
		Level: slog.LevelInfo,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})).With(what, index)
}

// logTail keeps the last lines of a simulation's log, each with its virtual time.
type logTail struct {
	began time.Time
	mu    sync.Mutex
	lines []string
}

// tailLines is the maximum number of lines kept.
const tailLines = 400

// Write implements io.Writer for a logger.
func (l *logTail) Write(p []byte) (int, error) {
	l.add(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (l *logTail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == tailLines {
		l.lines = slices.Delete(l.lines, 0, tailLines/4)
	}
	l.lines = append(l.lines, fmt.Sprintf("%12v %.400s",
		time.Since(l.began).Round(time.Microsecond), line))
}

// String returns the kept lines.
func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
