package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// Defaults of Config.
const (
	DefaultWorkers      = 128
	DefaultDrainTimeout = 30 * time.Second
)

// Config configures a worker. Its zero value is not complete: Client needs Insecure or certificates.
type Config struct {
	// Client configures the connections. The certificate needs the role observer, and grants to
	// write to the observed tables if these are restricted.
	Client percolator.ClientConfig
	// Workers is the number of concurrent runs in this process. Defaults to 128.
	Workers int
	// Queue is the maximum number of changes that each node has handed to this process and that
	// have not run. Defaults to 4096.
	Queue int
	// DrainTimeout bounds the wait for running observers once the context of Run has ended.
	// Defaults to 30 s.
	DrainTimeout time.Duration
	// LoopRuns is the number of runs of one row within 10 s, each caused by the last, after which
	// the next ones wait with growing pauses. Defaults to 100; negative disables it.
	LoopRuns int
	// Ready is called once a node has accepted the observers; nil means nothing is called.
	Ready func()
}

// Run runs the observers that register registers until ctx ends. addrs are nodes as for
// percolator.Dial; the worker finds the others itself, and goes on while it reaches any of them.
//
// Run first creates the tables that the cluster lacks. When ctx ends it accepts no further changes,
// waits for its runs, and returns nil, or an error that names what was still running after
// DrainTimeout. It returns an error at once if the registration is invalid, if no node answers
// within 10 s, or if the cluster refuses the worker: for its role, for its grants, or because an
// observer contradicts one of the cluster.
func Run(ctx context.Context, addrs []string, register func(*percolator.Registry), cfg Config) error {
	registry := percolator.NewRegistry()
	register(registry)
	if err := registry.Err(); err != nil {
		return err
	}
	if len(registry.Observers()) == 0 {
		return fmt.Errorf("worker: no observer is registered: %w", percolator.ErrInvalid)
	}
	cfg.Workers, cfg.Queue = cmp.Or(cfg.Workers, DefaultWorkers), cmp.Or(cfg.Queue, observer.DefaultQueue)
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, DefaultDrainTimeout)
	cfg.Client.Logger = cmp.Or(cfg.Client.Logger, slog.Default())
	if cfg.Ready == nil {
		cfg.Ready = func() {}
	}
	w, err := open(ctx, addrs, registry, cfg)
	if err != nil {
		return err
	}
	err = w.serve(ctx)
	return errors.Join(err, w.close(err))
}

// worker is one process. The goroutine of Run maintains its sessions; each session has goroutines of
// its own, which apply settings in turns.
type worker struct {
	cfg        Config
	observers  []percolator.ObserverSpec
	transport  *rpc.Client
	client     *txn.Client
	system     *actor.ActorSystem
	dispatcher *observer.Dispatcher
	traces     *tracing.Book // nil: runs are not traced

	suspect  atomic.Uint64 // timestamp up to which another process may have run changes
	versions atomic.Bool   // acknowledgments may have versions
	ready    sync.Once

	life    context.Context // of all sessions
	end     context.CancelFunc
	running sync.WaitGroup // sessions, and attempts at them

	mu       sync.Mutex
	sessions map[uint64]*session // by node
	scanning *session            // one of sessions: finds all changes, and gets the figures

	applying sync.Mutex
	newest   uint64 // version of the catalogue whose settings were applied last
}

func open(ctx context.Context, addrs []string, registry *percolator.Registry, cfg Config) (*worker, error) {
	c := cfg.Client
	transport, err := rpc.Dial(ctx, addrs, rpc.ClientConfig{
		Insecure: c.Insecure, CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, TLS: c.TLS,
		Batch: rpc.BatchConfig(c.Batch), Logger: c.Logger, Proxy: c.Proxy, Works: true,
	})
	if err != nil {
		return nil, err
	}
	tracer := tracing.New(c.TracerProvider)
	w := &worker{
		cfg: cfg, observers: registry.Observers(), transport: transport,
		client:   txn.NewClient(transport, txn.Config{LockTTL: c.LockTTL, Logger: c.Logger, Tracer: tracer}),
		traces:   tracing.NewBook(tracer),
		system:   actorkit.NewSystem(c.Logger),
		sessions: map[uint64]*session{},
	}
	w.life, w.end = context.WithCancel(context.Background())
	if err := w.start(ctx, registry); err != nil {
		w.end()
		w.system.Shutdown()
		return nil, errors.Join(err, w.client.Close())
	}
	return w, nil
}

// start creates missing tables, and starts the dispatcher, which runs nothing yet.
func (w *worker) start(ctx context.Context, registry *percolator.Registry) error {
	if err := w.createTables(ctx, registry); err != nil {
		return fmt.Errorf("worker: create tables: %w", err)
	}
	// The previous process may have died of its last run.
	if _, err := w.client.Timestamp(ctx); err != nil {
		return err
	}
	w.suspectUntil(uint64(mvcc.TimestampAt(w.client.OracleTime().UnixMilli())))
	registered := make([]observer.Registered, len(w.observers))
	for i, o := range w.observers {
		registered[i].Spec = o
	}
	var err error
	w.dispatcher, err = observer.Spawn(w.system, observer.Config{
		Observers: registered, Client: observer.NewClient(w.client), Workers: w.cfg.Workers,
		Queue: w.cfg.Queue, LoopRuns: w.cfg.LoopRuns, Logger: w.cfg.Client.Logger,
		Context: func(ctx context.Context) context.Context {
			return handle.WithDB(ctx, handle.NewDB(w.client))
		},
		Suspect:  func() mvcc.Timestamp { return mvcc.Timestamp(w.suspect.Load()) },
		Versions: w.versions.Load, Refused: w.refused, Traces: w.traces,
	})
	if err != nil {
		return err
	}
	return w.hold(ctx)
}

// createTables creates the registered tables and those of the observers that do not exist.
func (w *worker) createTables(ctx context.Context, registry *percolator.Registry) error {
	db := handle.NewDB(w.client)
	there, err := db.Tables(ctx)
	if err != nil {
		return err
	}
	wanted := registry.Tables()
	for _, o := range w.observers {
		if name := o.Column.Table; !slices.ContainsFunc(wanted, named(name)) {
			wanted = append(wanted, percolator.TableSpec{Name: name})
		}
	}
	for _, spec := range wanted {
		if len(spec.SplitKeys) == 0 && slices.ContainsFunc(there, named(spec.Name)) {
			continue
		}
		if err := db.CreateTable(ctx, spec); err != nil {
			return err
		}
	}
	return nil
}

func named(name string) func(percolator.TableSpec) bool {
	return func(t percolator.TableSpec) bool { return t.Name == name }
}

// suspectUntil raises the timestamp up to which another process may have run changes.
func (w *worker) suspectUntil(ts uint64) {
	for before := w.suspect.Load(); before < ts; before = w.suspect.Load() {
		if w.suspect.CompareAndSwap(before, ts) {
			return
		}
	}
}

// hold lets no run start while there is no session, and drops what is queued.
func (w *worker) hold(ctx context.Context) error {
	w.applying.Lock()
	defer w.applying.Unlock()
	if len(w.open()) > 0 {
		return nil
	}
	infos := make([]*pb.ObserverInfo, len(w.observers))
	for i, o := range w.observers {
		infos[i] = &pb.ObserverInfo{Name: o.Name, Paused: true}
	}
	return w.dispatcher.Control(ctx, infos)
}

// apply puts a node's settings into force, unless newer ones are.
func (w *worker) apply(ctx context.Context, m *pb.WorkSettings) error {
	w.applying.Lock()
	defer w.applying.Unlock()
	w.suspectUntil(m.GetSuspectTs())
	if m.GetVersions() { // a cluster's version does not go back
		w.versions.Store(true)
	}
	if m.GetVersion() < w.newest {
		return nil
	}
	w.newest = m.GetVersion()
	links := map[string]observer.Link{}
	for _, o := range m.GetObservers() {
		links[o.GetName()] = observer.Link{Table: mvcc.TableID(o.GetTable()), Own: o.GetOwnEntry()}
	}
	if err := w.dispatcher.Relink(ctx, links); err != nil {
		return err
	}
	return w.dispatcher.Control(ctx, m.GetObservers())
}

// refused implements observer.Config.Refused: the nodes tell the other processes.
func (w *worker) refused(name string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.scanning != nil {
		w.scanning.refused(name, d)
	}
}

// close drains the worker, unless it has failed, and closes it.
func (w *worker) close(failed error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.DrainTimeout)
	defer cancel()
	if failed != nil {
		cancel()
	}
	for _, s := range w.open() {
		s.post(func(m *pb.WorkRequest) { m.Leaves = true }, false) // no further cells
	}
	err := w.dispatcher.Stop(ctx)
	w.client.Finish(ctx)
	w.leave()
	w.system.Shutdown()
	if failed != nil {
		err = nil // the runs were canceled on purpose
	}
	return errors.Join(err, w.client.Close())
}
