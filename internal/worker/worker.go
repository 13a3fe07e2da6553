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

// Config configures a worker. Workers, Queue and DrainTimeout must be positive.
type Config struct {
	Workers, Queue int           // as worker.Config
	DrainTimeout   time.Duration // as worker.Config
	LoopRuns       int           // as worker.Config
	// Client configures the transactions.
	Client txn.Config
	// Traces maps changes to their traces; nil disables tracing of runs.
	Traces *tracing.Book
	// Alone restricts the worker to nodes at the addresses of its transport.
	Alone bool
	// Runs returns the client of runs; nil means that of observer.NewClient.
	Runs func(observer.Client) observer.Client
	// Ready, if not nil, is called once, when the first node has accepted the observers.
	Ready func()
}

// Transport connects a worker to nodes.
type Transport interface {
	txn.Transport
	// OpenWork opens a session with the node at the address.
	OpenWork(ctx context.Context, addr string) (*rpc.WorkSession, error)
	// Incarnation distinguishes the worker from other workers.
	Incarnation() uint64
	// Cluster returns the id of the cluster.
	Cluster() string
	// Addresses returns the addresses of nodes that are always tried.
	Addresses() []string
}

// Run runs the registered observers until ctx ends, as worker.Run does, and closes the transport.
func Run(ctx context.Context, transport Transport, registry *percolator.Registry, cfg Config) error {
	cfg.Client.Logger = cmp.Or(cfg.Client.Logger, slog.New(slog.DiscardHandler))
	if cfg.Ready == nil {
		cfg.Ready = func() {}
	}
	if cfg.Runs == nil {
		cfg.Runs = func(c observer.Client) observer.Client { return c }
	}
	w := &worker{
		cfg: cfg, observers: registry.Observers(), transport: transport,
		client: txn.NewClient(transport, cfg.Client), traces: cfg.Traces,
		system:   actorkit.NewSystem(cfg.Client.Logger),
		sessions: map[uint64]*session{},
	}
	w.life, w.end = context.WithCancel(context.Background())
	if err := w.start(ctx, registry); err != nil {
		w.end()
		w.system.Shutdown()
		return errors.Join(err, w.client.Close())
	}
	err := w.serve(ctx)
	return errors.Join(err, w.close(err))
}

// worker runs the observers of Run. The goroutine of Run maintains its sessions; each session has
// goroutines of its own. Of all sessions, one at a time applies settings.
type worker struct {
	cfg        Config
	observers  []percolator.ObserverSpec
	transport  Transport
	client     *txn.Client
	system     *actor.ActorSystem
	dispatcher *observer.Dispatcher
	traces     *tracing.Book // nil: runs are not traced

	suspect  atomic.Uint64 // a process may have died of running a change up to this timestamp
	versions atomic.Bool   // acknowledgments may have versions of observers
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

// start creates missing tables, and starts the dispatcher, which runs nothing yet.
func (w *worker) start(ctx context.Context, registry *percolator.Registry) error {
	if err := w.createTables(ctx, registry); err != nil {
		return fmt.Errorf("worker: create tables: %w", err)
	}
	// The previous process may have died of its last run, so all changes up to now are suspect.
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
		Observers: registered, Client: w.cfg.Runs(observer.NewClient(w.client)), Workers: w.cfg.Workers,
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

// createTables creates the registered tables and those of the observers that do not exist, and
// split keys that a registered table lacks.
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

// suspectUntil raises suspect to ts, unless it is higher already.
func (w *worker) suspectUntil(ts uint64) {
	for before := w.suspect.Load(); before < ts; before = w.suspect.Load() {
		if w.suspect.CompareAndSwap(before, ts) {
			return
		}
	}
}

// If there is no session, hold drops what is queued and lets no run start until apply is called.
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

// apply puts a node's settings into force. If settings of a newer catalogue are in force, it only
// raises suspect and versions.
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

// refused implements observer.Config.Refused. It posts the refusal to the node of the scanning
// session, if there is one; that node tells the other processes.
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
		s.post(func(m *pb.WorkRequest) { m.Leaves = true }, false) // nodes offer no more cells
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
