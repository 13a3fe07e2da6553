package notifytest

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// NodeConfig configures a node in memory.
type NodeConfig struct {
	Cluster  *Cluster
	ID       uint64 // node id in locks; 0: 1
	Register func(*percolator.Registry)
	Hints    scanner.Hints
	NoLocks  bool
	Scanners int           // 0: eight; negative: none
	Lockd    *lockd.Lockd  // another node's; nil: an own one
	LockTTL  time.Duration // 0: the client's default
	NoSweep  bool
	Faults   func(*pb.TabletRequest) txntest.Fault // of the node's operations; nil: none
	Observer func(*observer.Config)                // changes the configuration of the dispatcher
	Scanner  func(*scanner.Config)
}

// Node is a client, a lock service, scanners and a dispatcher over a cluster in memory.
type Node struct {
	System     *actor.ActorSystem
	Process    *txntest.Process // its transport
	Client     *txn.Client
	DB         *percolator.DB
	Lockd      *lockd.Lockd
	Dispatcher *observer.Dispatcher
	Scanners   *scanner.Scanners
	Tables     map[string]mvcc.TableID // of the observers

	ownLockd bool
	t        testing.TB
}

// Start starts a node and stops it at the test's end. Observed tables are created.
func Start(t testing.TB, cfg NodeConfig) *Node {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	cfg.ID = cmp.Or(cfg.ID, 1)
	n := &Node{System: actorkit.NewSystem(logger), Tables: map[string]mvcc.TableID{}, t: t}
	n.Process = cfg.Cluster.Process(cfg.ID, 1)
	if cfg.Faults != nil {
		n.Process.Inject(cfg.Faults)
	}
	n.Client = txn.NewClient(n.Process, txn.Config{LockTTL: cfg.LockTTL})
	n.DB = handle.NewDB(n.Client)
	n.Lockd = cfg.Lockd
	if n.Lockd == nil {
		n.Lockd, n.ownLockd = must(lockd.Spawn(n.System, lockd.Config{}))(t), true
	}
	registered := n.register(cfg)
	oc := observer.Config{
		Observers: registered, Client: observer.NewClient(n.Client),
		Context: func(ctx context.Context) context.Context { return handle.WithDB(ctx, n.DB) },
	}
	if cfg.Observer != nil {
		cfg.Observer(&oc)
	}
	n.Dispatcher = must(observer.Spawn(n.System, oc))(t)
	sc := scanner.Config{
		Targets: n.Dispatcher.Targets(), Dispatcher: n.Dispatcher, Places: cfg.Cluster.Places(),
		Walker: scanner.NewWalker(n.Process), Hints: cfg.Hints, Scanners: cfg.Scanners,
		Resolver: n.Client, Seed: cfg.ID,
	}
	if cfg.Scanners == 0 {
		sc.Scanners = 8
	}
	if cfg.NoSweep {
		sc.Resolver = nil
	}
	if !cfg.NoLocks {
		sc.Locker = n.Lockd
	}
	if cfg.Scanner != nil {
		cfg.Scanner(&sc)
	}
	n.Scanners = must(scanner.Spawn(n.System, sc))(t)
	cfg.Cluster.Listen(n.Scanners.Hint)
	t.Cleanup(n.stop)
	return n
}

func (n *Node) register(cfg NodeConfig) []observer.Registered {
	r := percolator.NewRegistry()
	if cfg.Register != nil {
		cfg.Register(r)
	}
	if err := r.Err(); err != nil {
		n.t.Fatal(err)
	}
	var out []observer.Registered
	for _, spec := range r.Observers() {
		if err := n.DB.CreateTable(context.Background(),
			percolator.TableSpec{Name: spec.Column.Table}); err != nil {
			n.t.Fatal(err)
		}
		id, err := n.Client.TableID(context.Background(), spec.Column.Table)
		if err != nil {
			n.t.Fatal(err)
		}
		n.Tables[spec.Column.Table] = id
		own := cfg.Cluster.Observed(id, spec.Column.Name, spec.Weak, spec.Name)
		out = append(out, observer.Registered{Spec: spec, Link: observer.Link{Table: id, Own: own}})
	}
	return out
}

// Cell returns the address of a cell of an observed table.
func (n *Node) Cell(table, row, column string) mvcc.Cell {
	return mvcc.Cell{Table: n.Tables[table], Row: row, Column: column}
}

// Stats returns the counters of the observer.
func (n *Node) Stats(name string) observer.Stats {
	for _, s := range n.Dispatcher.Stats() {
		if s.Name == name {
			return s
		}
	}
	n.t.Fatalf("no observer %q", name)
	return observer.Stats{}
}

// WaitIdle waits until no notification is left to run, as DB.WaitIdle does, and until Stats includes
// all runs of this node: a commit is visible before its run ends and is counted.
func (n *Node) WaitIdle(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.DB.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	Eventually(t, time.Minute, "no run", func() bool {
		return !slices.ContainsFunc(n.Dispatcher.Stats(), func(s observer.Stats) bool { return s.Running > s.Stuck })
	})
	if _, err := n.Dispatcher.Rows(ctx); err != nil { // it answers after counting the last run
		t.Fatal(err)
	}
}

func (n *Node) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Scanners.Stop(ctx); err != nil {
		n.t.Errorf("scanners: %v", err)
	}
	if err := n.Dispatcher.Stop(ctx); err != nil {
		n.t.Errorf("dispatcher: %v", err)
	}
	if n.ownLockd {
		if err := n.Lockd.Stop(ctx); err != nil {
			n.t.Errorf("lockd: %v", err)
		}
	}
	if err := n.Client.Close(); err != nil {
		n.t.Errorf("client: %v", err)
	}
	n.System.Shutdown()
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Eventually polls until the condition holds, and fails the test if it does not within the time.
func Eventually(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	end := time.After(within)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-end:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}
