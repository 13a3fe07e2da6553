package percolatortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
)

// Defaults of the options.
const (
	// DefaultTimeout bounds each call on a Node.
	DefaultTimeout = 10 * time.Second
	// memTable is enough for values of a mebibyte, and little enough for tens of nodes in
	// one process.
	memTable = 16 << 20
)

// Node is a node in memory that belongs to a test. Its methods may be used concurrently,
// but for Restart and Crash. Those that take a testing.TB fail that test when they cannot
// do what they are for.
type Node struct {
	cfg     node.Config
	timeout time.Duration
	log     *testLog
	faults  faults
	store   *store.Store

	mu   sync.Mutex
	node *node.Node // nil: it could not be started again
	life *life
}

// Option changes what Start starts.
type Option func(*options)

type options struct {
	cfg     node.Config
	timeout time.Duration
	tables  []percolator.TableSpec
}

// WithTables creates tables, apart from those of the observers, which are there anyway.
func WithTables(specs ...percolator.TableSpec) Option {
	return func(o *options) { o.tables = append(o.tables, specs...) }
}

// WithTimeout bounds each call on the node; default DefaultTimeout.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithConfig changes the node's configuration. Dir, Listen and HTTP stay empty.
func WithConfig(change func(*node.Config)) Option { return func(o *options) { change(&o.cfg) } }

// WithDuplicateHints makes the node hear of every change twice and use no advisory locks:
// whatever finds work finds it more than once, at the same time.
func WithDuplicateHints() Option {
	return WithConfig(func(c *node.Config) {
		c.Notifications.DuplicateHints, c.Notifications.NoLockd = true, true
	})
}

// Start starts a node with the observers that register adds; nil: none. It is closed when
// t ends, which fails t if anything of it does not end. Warnings of the node go to t's
// log.
func Start(t testing.TB, register func(*percolator.Registry), opts ...Option) *Node {
	t.Helper()
	o := options{cfg: node.DefaultConfig(), timeout: DefaultTimeout}
	tune(&o.cfg)
	for _, opt := range opts {
		opt(&o)
	}
	n := &Node{cfg: o.cfg, timeout: o.timeout, log: &testLog{t: t}}
	n.cfg.Dir, n.cfg.Listen, n.cfg.HTTP, n.cfg.Insecure, n.cfg.Store.InMemory = "", "", "", true,
		true
	if n.cfg.Logger == nil {
		n.cfg.Logger = n.log.logger()
	}
	var err error
	if n.cfg.Observers, err = n.wrap(register); err != nil {
		t.Fatalf("percolatortest: %v", err)
	}
	n.store, err = store.Open(store.Options{
		InMemory: true, MemTableSize: n.cfg.Store.MemTableSize, Logger: n.cfg.Logger,
	})
	if err != nil {
		t.Fatalf("percolatortest: %v", err)
	}
	t.Cleanup(func() { n.close(t) })
	n.open(t)
	ctx, cancel := n.bounded()
	defer cancel()
	for _, spec := range o.tables {
		if err := n.DB().CreateTable(ctx, spec); err != nil {
			t.Fatalf("percolatortest: %v", err)
		}
	}
	return n
}

// tune makes a node quick to find work, and light.
func tune(c *node.Config) {
	c.Scanners, c.ObserverWorkers, c.Store.MemTableSize = 1, 8, memTable
	c.LockTTL = 500 * time.Millisecond
	s := &c.Notifications
	s.ScanPause, s.ScanPauseMax, s.Young = 5*time.Millisecond, 50*time.Millisecond,
		20*time.Millisecond
	s.FailurePause, s.FailurePauseMax = time.Millisecond, 10*time.Millisecond
}

// DB is the node's database. It ends with Restart and Crash, which begin another.
func (n *Node) DB() *percolator.DB { return n.current().DB() }

// Node is the node itself. It ends with Restart and Crash, which begin another.
func (n *Node) Node() *node.Node { return n.current() }

func (n *Node) current() *node.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node
}

// Restart closes the node as a shutdown does, runs that go on finish first, and starts it
// again over the same state. Observers' counters begin anew.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.stop(t)
	n.open(t)
}

// Crash ends the node as the death of its process does: whatever is under way reaches no
// tablet any more, so that locks, unfinished commits and notifications stay behind; then
// it starts the node again over the same state. The contexts of runs that go on are
// cancelled, and they are waited for.
func (n *Node) Crash(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	n.life.crash()
	n.mu.Unlock()
	n.stop(t)
	n.open(t)
}

// open begins a life of the node.
func (n *Node) open(t testing.TB) {
	t.Helper()
	ctx, cancel := n.bounded()
	defer cancel()
	l := newLife(&n.faults)
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	opened, err := nodeparts.Open[node.Node](ctx, n.cfg, nodeparts.Parts{
		Store: n.store, Oracle: l.oracle,
		Transport: func(t txn.Transport) txn.Transport { l.Transport = t; return l },
	})
	if err != nil {
		l.end()
		t.Fatalf("percolatortest: start the node: %v", err)
	}
	n.mu.Lock()
	n.node = opened
	n.mu.Unlock()
}

// stop ends a life of the node.
func (n *Node) stop(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	ending, l := n.node, n.life
	n.node = nil
	n.mu.Unlock()
	if ending == nil {
		return
	}
	ctx, cancel := n.bounded()
	defer cancel()
	err := ending.Close(ctx)
	l.end()
	if err != nil && !(l.crashed() && errors.Is(err, errCrashed)) {
		t.Errorf("percolatortest: close the node: %v", err)
	}
}

func (n *Node) close(t testing.TB) {
	t.Helper()
	n.stop(t)
	if err := n.store.Close(); err != nil {
		t.Errorf("percolatortest: close the store: %v", err)
	}
	n.log.end()
	n.faults.unused(t)
}

// bounded is a context for one call. It does not end with the test's own, so that
// cleanups may use the node too.
func (n *Node) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), n.timeout,
		fmt.Errorf("percolatortest: not within %v", n.timeout))
}
