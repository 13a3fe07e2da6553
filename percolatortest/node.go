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
	// memTable allows values of 1 MiB and dozens of nodes in one process.
	memTable = 16 << 20
)

// Node is an in-memory node of a test. Its methods are safe for concurrent use, except
// Restart, RestartWith and Crash. Methods with a testing.TB fail that test on any error.
type Node struct {
	cfg     node.Config
	twice   bool // each hint is sent twice
	timeout time.Duration
	log     *testLog
	faults  faults
	store   *store.Store

	mu   sync.Mutex
	node *node.Node // nil if the last start failed
	life *life
}

// Option configures Start.
type Option func(*options)

type options struct {
	cfg     node.Config
	twice   bool // each hint is sent twice
	timeout time.Duration
	tables  []percolator.TableSpec
}

// Tables creates tables in addition to those of the observers.
func Tables(specs ...percolator.TableSpec) Option {
	return func(o *options) { o.tables = append(o.tables, specs...) }
}

// Timeout sets the timeout of each call on the node. Defaults to DefaultTimeout.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Config calls change with the node's configuration. Start overrides Dir, Listen, HTTP, Insecure,
// Store.InMemory and Observers.
func Config(change func(*node.Config)) Option { return func(o *options) { change(&o.cfg) } }

// DuplicateHints delivers the hint of every change twice and disables advisory locks, so
// that the same notification is found more than once at the same time.
func DuplicateHints() Option {
	return func(o *options) { o.twice, o.cfg.Notifications.NoLockd = true, true }
}

// WithTables is Tables.
//
// Deprecated: use Tables.
func WithTables(specs ...percolator.TableSpec) Option { return Tables(specs...) }

// WithTimeout is Timeout.
//
// Deprecated: use Timeout.
func WithTimeout(d time.Duration) Option { return Timeout(d) }

// WithConfig is Config.
//
// Deprecated: use Config.
func WithConfig(change func(*node.Config)) Option { return Config(change) }

// WithDuplicateHints is DuplicateHints.
//
// Deprecated: use DuplicateHints.
func WithDuplicateHints() Option { return DuplicateHints() }

// Start starts a node with the observers that register adds; register may be nil. The node is
// closed when t ends; t fails if the node does not stop completely. Warnings of the node go
// to t's log.
func Start(t testing.TB, register func(*percolator.Registry), opts ...Option) *Node {
	t.Helper()
	o := options{cfg: node.DefaultConfig(), timeout: DefaultTimeout}
	tune(&o.cfg)
	for _, opt := range opts {
		opt(&o)
	}
	n := &Node{cfg: o.cfg, twice: o.twice, timeout: o.timeout, log: &testLog{t: t}}
	n.cfg.Dir, n.cfg.Listen, n.cfg.HTTP, n.cfg.Insecure, n.cfg.Store.InMemory = "", "", "", true,
		true
	if n.cfg.Logger == nil {
		n.cfg.Logger = n.log.logger()
	}
	var err error
	if n.cfg.Observers, err = n.wrap(register); err != nil {
		t.Fatalf("percolatortest: register: %v", err)
	}
	n.store, err = store.Open(store.Options{
		InMemory: true, MemTableSize: n.cfg.Store.MemTableSize, Logger: n.cfg.Logger,
	})
	if err != nil {
		t.Fatalf("percolatortest: open the store: %v", err)
	}
	t.Cleanup(func() { n.close(t) })
	n.open(t)
	ctx, cancel := n.callContext()
	defer cancel()
	for _, spec := range o.tables {
		if err := n.DB().CreateTable(ctx, spec); err != nil {
			t.Fatalf("percolatortest: create table %q: %v", spec.Name, err)
		}
	}
	return n
}

// tune shortens scan intervals, backoffs and LockTTL, and reduces workers and memory.
func tune(c *node.Config) {
	c.Scanners, c.ObserverWorkers, c.Store.MemTableSize = 1, 8, memTable
	c.LockTTL = 500 * time.Millisecond
	s := &c.Notifications
	s.ScanPause, s.ScanPauseMax, s.Young = 5*time.Millisecond, 50*time.Millisecond,
		20*time.Millisecond
	s.FailurePause, s.FailurePauseMax = time.Millisecond, 10*time.Millisecond
}

// DB returns the node's database. Restart and Crash close it; call DB again after them.
func (n *Node) DB() *percolator.DB { return n.current().DB() }

// Node returns the node. Restart and Crash close it; call Node again after them.
func (n *Node) Node() *node.Node { return n.current() }

func (n *Node) current() *node.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node
}

// Restart shuts the node down, which waits for active runs, and starts it again on the same
// state. It resets the counters of observers.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.stop(t)
	n.open(t)
}

// RestartWith restarts the node with the observers that register adds in place of the previous ones, as
// the deployment of another release of the program does. register may be nil. The state keeps observers
// that are not registered any more, and their notifications; RunUntilIdle does not wait for these.
func (n *Node) RestartWith(t testing.TB, register func(*percolator.Registry)) {
	t.Helper()
	observers, err := n.wrap(register)
	if err != nil {
		t.Fatalf("percolatortest: register: %v", err)
	}
	n.stop(t)
	n.cfg.Observers = observers
	n.open(t)
}

// Crash ends the node as the death of its process does, and starts it again on the same state.
// No message in flight reaches a tablet any more, so locks, unfinished commits and
// notifications remain. Crash cancels the contexts of active runs and waits for these runs.
func (n *Node) Crash(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	n.life.crash()
	n.mu.Unlock()
	n.stop(t)
	n.open(t)
}

// open starts the node.
func (n *Node) open(t testing.TB) {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	l := newLife(&n.faults)
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	opened, err := nodeparts.Open[node.Node](ctx, n.cfg, nodeparts.Parts{
		Store: n.store, Oracle: l.oracle, DuplicateHints: n.twice,
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

// stop closes the node if it is open.
func (n *Node) stop(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	ending, l := n.node, n.life
	n.node = nil
	n.mu.Unlock()
	if ending == nil {
		return
	}
	ctx, cancel := n.callContext()
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
	n.faults.reportUnused(t)
}

// callContext returns a context for one call. It is independent of the test's context, so
// that cleanups may use the node too.
func (n *Node) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), n.timeout,
		fmt.Errorf("percolatortest: timeout of %v", n.timeout))
}
