package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	dto "github.com/prometheus/client_model/go"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/config"
	"github.com/percolator-go/percolator/node/console"
	"github.com/percolator-go/percolator/node/hosting"
	"github.com/percolator-go/percolator/node/leaderjobs"
	"github.com/percolator-go/percolator/node/telemetry"
	"github.com/percolator-go/percolator/store"
)

// Config configures a node; start from DefaultConfig. Its fields are documented in package
// node/config: `go doc node/config.Config`. Open reports each fault as a *config.Fault.
type Config = config.Config

// Placement configures the placement of replicas and leaders (Config.Placement). Its fields are
// documented in package node/config.
type Placement = config.Placement

// Limits bounds the sizes of rows, columns, values and batches, in bytes.
type Limits = config.Limits

// BatchConfig configures the batching of one kind of actor (Config.Batch). Its fields are
// documented in package node/config.
type BatchConfig = config.BatchConfig

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return config.DefaultConfig() }

// Node is a running node. Its methods may be used concurrently.
type Node struct {
	// A Node opens the parts below in the order of open, wires them, and closes them in the
	// opposite order. Its only mutable state is its phase. open sets all other fields, on the
	// goroutine of Open, before anything that reads them runs. Other nodes' messages already arrive
	// during open; peerHandler refuses requests for a part that is not open yet. Close may find any
	// part missing, because it also cleans up after a failed Open.

	cfg     Config
	parts   nodeparts.Parts
	started time.Time
	life    context.Context // ends when Close has drained the node
	end     context.CancelFunc

	store     *store.Store
	gate      *version.Gate
	joining   *joining
	identity  join.Identity
	tracing   spans
	system    *actor.ActorSystem
	turns     *actorkit.Dispatcher
	router    *route.Router
	peers     *peer.Peers        // nil: the node is alone
	peerNodes *cluster.PeerNodes // requests go through peers
	remote    *remoting.Link     // carries peers; nil: alone, or a test replaced the link
	unwatch   func()             // stops watching members; nil: not watching
	carrier   *route.Carrier
	oracles   *route.Oracles
	meta      *meta.Meta
	certs     certificates
	tablets   *tablets
	oracle    *localOracle
	survey    *scanner.ClusterSurvey
	liveness  *liveness.Node
	lockd     atomic.Pointer[lockd.Lockd] // nil: not running yet; other nodes may already send requests
	transport *transport                  // of the client and of the server of remote clients
	clients   rpc.Clients                 // remote ones
	client    *txn.Client
	policy    *cluster.PolicyView
	status    *statuses

	// background are the node's own goroutines; woken wakes the worker of changes, and requests
	// queues those requests of other nodes that cannot be answered at once.
	background *background
	woken      actorkit.Wakeup
	requests   requestQueue
	jobs       *leaderjobs.Jobs
	observers  *hosting.Host
	hosting    atomic.Pointer[hosting.Host] // observers, for requests of other nodes
	health     *metaHealth

	exporter *telemetry.Exporter
	window   *telemetry.Window
	servers  *servers
	pages    atomic.Pointer[console.Parts] // for the console; nil until the node serves
	phase    phase
	failed   chan error // capacity 1: the error for which this process must end

	// peersOpen is closed when the node's carrier exists. Until then other nodes' requests are
	// refused.
	peersOpen chan struct{}
}

// Open starts a node and returns once it serves. ctx bounds the start only. The error lists all
// faults of cfg.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	return open(ctx, cfg, nodeparts.Parts{})
}

// open opens a node, some of whose parts a test may replace by those in parts. If it fails, it
// drains the opened parts for at most closeTimeout and closes them.
func open(ctx context.Context, cfg Config, parts nodeparts.Parts) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Batch.Client != (config.BatchConfig{}) {
		cfg.Logger.Warn("Batch.Client (--batch-client-...) has no effect: set Batch.Tablet, or the Batch of clients that Dial")
	}
	// Observers are declared before anything is opened: an invalid declaration must not leave a
	// directory or a bound port behind.
	registry := percolator.NewRegistry()
	if cfg.Observers != nil {
		cfg.Observers(registry)
	}
	if err := registry.Err(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, parts: parts, started: time.Now(), router: route.NewRouter()}
	n.life, n.end = context.WithCancel(context.Background())
	n.peersOpen, n.failed = make(chan struct{}), make(chan error, 1)
	n.background, n.woken = newBackground(n.life), actorkit.NewWakeup()
	n.requests = make(requestQueue, maxPeerRequests)
	n.policy = newPolicyView(cfg, registry.Observers())
	if err := n.open(ctx, registry); err != nil {
		// The end of ctx may be why the start failed, so closing uses a timeout of its own.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(err, n.Close(closing))
	}
	return n, nil
}

// closeTimeout limits the draining of a node that could not be opened.
const closeTimeout = 10 * time.Second

// open opens the parts, each of which may use earlier ones. It returns at the first error; its caller
// closes the opened parts.
func (n *Node) open(ctx context.Context, registry *percolator.Registry) error {
	files, err := openCerts(n.cfg)
	if err != nil {
		return err
	}
	n.certs = certificates{files, n.now, &rpc.LegacyCerts{}, n.reachedBy}
	if n.store, err = openStore(n.cfg, n.parts); err != nil {
		return err
	}
	build := cmp.Or(n.parts.Versions, version.Known())
	n.gate = version.NewGate(build, n.store.Version(), n.store.RaiseVersion)
	if err := n.join(ctx); err != nil {
		return err
	}
	if n.tracing, err = openTracing(n.cfg, n.parts, n.identity); err != nil {
		return err
	}
	n.system = actorkit.NewSystem(n.cfg.Logger)
	// Enough idle goroutines for the actors that run concurrently.
	n.turns = actorkit.NewDispatcher(4 * runtime.GOMAXPROCS(0))
	// Tablets are created, but not started, before the link to other nodes, whose handler delivers
	// messages to them.
	n.openTablets()
	if err := n.openPeers(); err != nil {
		return err
	}
	n.background.start(n.runLiveness)
	// Replicas run from here on: they receive messages of other nodes and elect leaders.
	if err := n.tablets.start(ctx, n.joining.self, n.oracles, n.meta.Tablets); err != nil {
		return err
	}
	// The oracle issues no timestamps before the meta tablet confirms that it leads on this node.
	if err := n.oracle.start(n.life, n.system, n.turns, n.cfg, n.parts.Clock); err != nil {
		return err
	}
	locks, err := lockd.Spawn(n.system, lockd.Config{Batch: actorkit.BatchConfig(n.cfg.Batch.Lockd)})
	if err != nil {
		return err
	}
	n.lockd.Store(locks)
	// The client calls the transport, some of whose fields are parts that use the client:
	// openParts sets these fields.
	n.transport = &transport{
		Transport: route.NewTransport(n.carrier, n.oracles, workerOf(n.identity)),
		schema:    n.meta.Schema, catalogue: n.meta.Observers, history: n.meta.History,
		policy: n.policy, logger: n.cfg.Logger,
	}
	n.client = txn.NewClient(wrap(n.transport, n.parts), n.clientConfig())
	n.openParts()
	// The next steps need meta, which any node may lead.
	if err := findMeta(ctx, n.router, n.cfg.Logger); err != nil {
		return err
	}
	if err := n.policy.Open(ctx, n.tablets.leadsMeta); err != nil {
		return err
	}
	n.startBackground()
	if err := n.observers.Start(ctx, registry); err != nil {
		return err
	}
	// Host.Start has made the first attempt; this goroutine makes the others.
	n.background.start(n.observers.Register)
	n.joining.open(n.registry(), n.fail)
	return n.serve(ctx)
}

// clientConfig returns the configuration of the node's own client, and of those of the gateway.
func (n *Node) clientConfig() txn.Config {
	return txn.Config{
		Limits: mvcc.Limits(n.cfg.Limits), LockTTL: n.cfg.LockTTL, Logger: n.cfg.Logger,
		Tracer:       n.tracing.tracer,
		AsyncCommits: func() bool { return n.gate.Has(version.AsyncCommits) },
	}
}

// findMeta reads the tablet map and waits until meta answers or ctx ends: without meta there are no
// timestamps. It does not wait for other tablets. Any error but a timeout ends the wait.
func findMeta(ctx context.Context, router *route.Router, logger *slog.Logger) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, metaAttempt)
		err := router.Refresh(attempt)
		cancel()
		switch {
		case err == nil:
			return nil
		// Retry only after a timeout. Any other error fails the start.
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("node: read the tablet map: %w", err)
		}
		logger.Warn("meta does not answer; the node serves no clients until meta does",
			"error", err)
	}
}

// metaAttempt is the timeout of one attempt to read the tablet map at the start. A timeout is logged
// as a warning and retried; any other error ends the start.
const metaAttempt = 10 * time.Second

// openTablets creates this node's tablets, its oracle and the survey of tablets with work for
// observers. Neither the tablets nor the oracle run before their start.
func (n *Node) openTablets() {
	self := n.identity.NodeID
	n.peerNodes = cluster.NewPeerNodes(self)
	n.oracle = &localOracle{self: self, router: n.router, peerNodes: n.peerNodes, clock: n.now, tracer: n.tracing.tracer}
	n.liveness = n.newLiveness()
	n.tablets = &tablets{
		cfg: n.cfg, liveness: n.liveness, node: self, store: n.store, system: n.system, turns: n.turns, router: n.router,
		peerNodes: n.peerNodes,
		oracle:    n.oracle, policy: n.policy, gate: n.gate, intercept: n.parts.Oracle,
		moved: n.woken.Wake, life: n.life, traces: tracing.NewBook(n.tracing.tracer),
	}
	n.survey = scanner.NewClusterSurvey(scanner.SurveyConfig{
		Node: self, Incarnation: n.identity.Incarnation, IdleHints: &n.tablets.idleHints, Leaders: n.router,
		Others: n.peerNodes.Alive, Ask: n.peerNodes.Survey,
	})
	n.tablets.open(n.parts.Stopped)
}

// openParts creates the parts that use the client: the jobs of meta's leader, the observers' host,
// and the services for operators and other nodes. None of them runs yet. The jobs and the statuses
// refer to each other, and the client's transport to all of them: their fields are set here.
func (n *Node) openParts() {
	self := n.identity.NodeID
	n.status = &statuses{
		cfg: n.cfg, self: n.identity, started: n.started, now: n.now, store: n.store,
		router: n.router, peerNodes: n.peerNodes, oracle: n.oracle, tablets: n.tablets,
		policy: n.policy, gate: n.gate, certs: n.certs, addr: n.Addr, httpAddr: n.HTTPAddr,
	}
	n.jobs = leaderjobs.New(leaderjobs.Config{
		Node: n.cfg, System: n.system, Meta: n.meta, Client: n.client, Policy: n.policy,
		Send: n.carrier.Sender(), Members: n.peerNodes.Members(), Gate: n.gate,
		Status: n.status.of, Now: n.now,
	})
	n.observers = hosting.New(hosting.Config{
		Node: n.cfg, DuplicateHints: n.parts.DuplicateHints, Self: n.identity, Worker: workerOf(n.identity), Life: n.life, System: n.system,
		Client: n.client, Schema: n.meta.Schema, Catalogue: n.meta.Observers,
		Backfills: n.meta.Backfills, Router: n.router, Peers: n.peerNodes, Policy: n.policy,
		Versions: func() bool { return n.gate.Has(version.ObserverVersions) },
		Survey:   n.survey, Locks: n.lockd.Load(), Observed: n.tablets.idleHints.Observed,
		SetHint: n.tablets.setHint, Traces: n.tablets.traces, WakeBackfills: n.jobs.WakeBackfills,
	})
	n.hosting.Store(n.observers)
	n.health = newMetaHealth(func(ctx context.Context) error {
		_, err := n.meta.Observers.Catalogue(ctx)
		return err
	})
	n.status.jobs, n.status.observers, n.status.health = n.jobs, n.observers, n.health
	sources := n.sources()
	n.exporter, n.window = telemetry.NewExporter(sources), telemetry.NewWindow(&sources)
	t := n.transport
	t.client, t.observers, t.status = n.client, n.observers, n.status
	t.admin = admin.New(admin.Config{
		Self: self, Meta: n.meta, Router: n.router, Carrier: n.carrier,
		Members: n.peerNodes.Members(), Jobs: &n.status.reported, Gate: n.gate,
		Client: n.client, View: n.policy,
		Node: &adminNode{
			self: self, router: n.router, jobs: n.jobs, observers: n.observers,
			status: n.status, tablets: n.jobs.Statuses(), logLevel: n.cfg.LogLevel,
			clients: &n.clients, peerNodes: n.peerNodes,
			gather: func() ([]*dto.MetricFamily, error) { return n.exporter.Gatherer().Gather() },
		},
		Logger: n.cfg.Logger,
	})
}

// startBackground starts the node's own goroutines, except runLiveness, registration and the window
// of telemetry, after meta has answered.
func (n *Node) startBackground() {
	n.background.start(n.noteRecovery)
	changes := &changes{
		woken: n.woken, tablets: n.tablets, jobs: n.jobs, members: n.peerNodes.Members(),
		observers: n.observers, membership: n.joining.membership, admin: n.transport.admin, locks: n.lockd.Load(),
		logger:    n.cfg.Logger,
		publisher: publisher{members: n.peerNodes.Members(), tablets: n.tablets},
	}
	if !n.cfg.Store.InMemory {
		changes.publisher.store = n.store
	}
	answers := &responder{n.requests, n.identity, n.observers, n.status, n.jobs, n.window}
	n.background.start(changes.run, answers.run, n.health.watch, n.observers.WatchTables)
	if n.certs.files != nil {
		n.background.start(n.certs.files.Watch)
	}
	// A node with a replica of every tablet receives all changes from them; others must read the
	// map.
	holdsSome := func() bool { return len(n.router.Held()) < len(n.router.All()) }
	n.background.start(func(ctx context.Context) { rereadMap(ctx, holdsSome, n.router.Refresh) })
}

// Status describes the node: its identity, tablets, oracle and observers. Tablets that do not
// answer within 1 s are omitted.
//
// Deprecated: use State, or percolator.DB.Admin for observers. It returns a message of the protocol
// between nodes.
func (n *Node) Status() *pb.NodeStatusResponse {
	status, _ := n.status.get(context.Background(), false) // possibly incomplete
	return status
}

// now returns the time of the oracle's clock, which a test may replace.
func (n *Node) now() time.Time {
	if n.parts.Clock != nil {
		return n.parts.Clock()
	}
	return time.Now()
}

// workerOf returns the name of a process in locks and in the table of linked observers.
func workerOf(id join.Identity) mvcc.Worker {
	return mvcc.Worker{Node: id.NodeID, Incarnation: id.Incarnation}
}

// DB returns a new handle on the database in this process. Closing it leaves other handles usable;
// all of them end with the node.
func (n *Node) DB() *percolator.DB { return handle.NewDB(n.client) }

// Close drains the node, at most until ctx ends, then stops it and joins its goroutines. A second
// call returns nil at once, also while the first is running.
func (n *Node) Close(ctx context.Context) error {
	if n.phase.beginClose() {
		return nil
	}
	err := n.Drain(ctx)
	n.end() // after the drain, whose work still runs under life
	return errors.Join(err, n.stop())
}

// Drain transfers leaderships, refuses new remote work for good, ends the jobs, and waits, at most
// until ctx ends, for running observers and for secondaries to be committed.
func (n *Node) Drain(ctx context.Context) error {
	var errs []error
	if n.joining != nil {
		n.joining.quit() // the upkeep uses parts that are about to stop
	}
	n.transferLeaderships(ctx) // first, because clients are still served
	if n.servers != nil {
		n.servers.drain(ctx)
	}
	// Once these goroutines have ended, nothing starts jobs any more.
	n.background.stop()
	n.requests.refuse()
	if n.jobs != nil {
		errs = append(errs, n.jobs.End(ctx)) // the worker of changes would start them again
	}
	if n.observers != nil {
		errs = append(errs, n.observers.Stop(ctx))
	}
	if n.client != nil {
		// Transactions that encounter remaining locks would wait for their expiry.
		n.client.Finish(ctx)
	}
	n.transferLeaderships(ctx) // leaderships that have returned
	if n.unwatch != nil {
		n.unwatch()
	}
	return errors.Join(errs...)
}

// stop closes all parts, those opened last first, and returns all of their errors. It continues after
// an error: each part owns goroutines, ports or files.
func (n *Node) stop() error {
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	if n.servers != nil {
		add(n.servers.close())
	}
	if n.client != nil {
		add(n.client.Close())
	}
	if n.peers != nil {
		add(n.peers.Close()) // later requests of other nodes get no answer
	}
	if l := n.lockd.Load(); l != nil {
		add(l.Stop(context.Background()))
	}
	if n.oracle != nil {
		add(n.oracle.stop())
	}
	if n.tablets != nil {
		add(n.tablets.close())
	}
	if n.joining != nil {
		add(n.joining.close()) // from here on other nodes treat this incarnation as dead
	}
	// A store passed in by a test belongs to it; another node may use it next.
	if n.store != nil && n.parts.Store == nil {
		add(n.store.Close())
	}
	if n.system != nil {
		n.system.Shutdown()
	}
	n.tracing.close()
	// The dispatcher is last: actors run on it until the system has stopped.
	if n.turns != nil {
		n.turns.Close()
	}
	return errors.Join(errs...)
}
