package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/config"
)

// Config configures a Host. All fields are required unless stated otherwise.
type Config struct {
	// Node is the configuration of the node.
	Node config.Config
	// DuplicateHints has each hint sent twice.
	DuplicateHints bool
	// Self is the identity of the node, Worker its name in the catalogue.
	Self   join.Identity
	Worker mvcc.Worker
	// Life ends when a closing node has been drained. It ends requests for metrics and the work
	// that remains when a worker is gone.
	Life   context.Context
	System *actor.ActorSystem
	Client *txn.Client
	// Schema, Catalogue and Backfills are records of meta.
	Schema    *meta.Schema
	Catalogue *meta.Observers
	Backfills *meta.BackfillRecords
	Router    *route.Router
	Peers     *cluster.PeerNodes
	Policy    *cluster.PolicyView
	// Versions reports whether acknowledgments may have versions of observers.
	Versions func() bool
	// Survey finds tablets without work for observers.
	Survey *scanner.ClusterSurvey
	// Locks is the lock service of this node.
	Locks *lockd.Lockd
	// Observed returns the columns of a tablet led here that observers of any node watch.
	Observed func(tablet uint64) []notify.Target
	// SetHint sets the function that the tablets led here call with cells that have become dirty;
	// nil means none.
	SetHint func(hint func([]mvcc.Cell))
	// Traces links the spans of a run to the transaction that set it off.
	Traces *tracing.Book
	// WakeBackfills wakes the back-fills if they run here. It does not block.
	WakeBackfills func()
}

// Host runs the observers that this node's program links. It owns whether they are entered in
// the catalogue (registration), and their dispatcher and scanners (runner). The goroutine that
// holds the token of applying may change them. Its methods may be called concurrently; those
// with a context wait for meta or other nodes. Runs of observers may be in flight until Stop
// returns.
type Host struct {
	cfg    Config
	locker *locker

	registration *registration
	workers      *workers
	// applying has capacity 1 and holds a token while a goroutine applies the catalogue. It is
	// a channel rather than a mutex, so that waiting for it ends with ctx.
	applying chan struct{}
	runs     atomic.Pointer[runner] // nil before Start
	counted  admin.LastAnswer[[]*pb.ObserverState]
}

// New returns a Host that runs nothing before Start.
func New(cfg Config) *Host {
	h := &Host{
		cfg: cfg, applying: make(chan struct{}, 1),
		locker: &locker{self: cfg.Self.NodeID, router: cfg.Router, peers: cfg.Peers, local: cfg.Locks},
	}
	h.workers = newWorkers(h)
	h.registration = &registration{
		schema: cfg.Schema, catalogue: cfg.Catalogue, logger: cfg.Node.Logger,
		apply: h.ApplyCatalogue, woken: actorkit.NewWakeup(),
	}
	return h
}

// Register enters observers in the catalogue that Start could not enter, and distributes the
// catalogue to tablets that did not answer, until ctx ends. It runs on its own goroutine.
func (h *Host) Register(ctx context.Context) { h.registration.run(ctx) }

// CheckTablets makes Register check whether every tablet knows the catalogue.
func (h *Host) CheckTablets() { h.registration.woken.Wake() }

// Unregistered returns why not every tablet knows this node's observers; empty if all do.
func (h *Host) Unregistered() string { return h.registration.why() }

// Status describes the observers of this process; none before Start.
func (h *Host) Status() []*pb.ObserverStatus {
	if x := h.runs.Load(); x != nil {
		return x.dispatcher.Status()
	}
	return nil
}

// StatusOfAll describes the observers of this process and those of the workers that report to this
// node, each worker's by itself: an observer may be there several times.
func (h *Host) StatusOfAll() []*pb.ObserverStatus {
	out := h.Status()
	for _, s := range h.workers.all() {
		out = append(out, s.figures()...)
	}
	return out
}

// Stats returns the counters and histograms of the observers of this process; none before
// Start.
func (h *Host) Stats() []observer.Stats {
	if x := h.runs.Load(); x != nil {
		return x.dispatcher.Stats()
	}
	return nil
}

// Scans returns the counters of the scanners that were started last; nil if none was.
func (h *Host) Scans() *scanner.Stats {
	if own := h.ownScanners(); own != nil {
		return own.Stats()
	}
	return nil
}

// ownScanners returns the scanners for this process's own observers, without those for workers'
// sessions; nil until Start has started them.
func (h *Host) ownScanners() *scanner.Scanners {
	if x := h.runs.Load(); x != nil {
		return x.scanners.Load()
	}
	return nil
}

// ApplyCatalogue reads the cluster's policy and the newest catalogue, and starts, stops and limits
// this node's observers as the catalogue says. Each change by an operator calls it on every live
// node, and this node calls it after a registration and after the return of a member; WatchTables
// calls it periodically. Calls take turns, and each reads the catalogue in its
// turn, so that an older version is never applied last. The error may wrap meta.ErrUntold.
func (h *Host) ApplyCatalogue(ctx context.Context) error {
	if _, err := h.cfg.Policy.Read(ctx); err != nil {
		return err
	}
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	return h.applyCatalogueLocked(ctx)
}

// lock takes the token of applying, unless ctx ends first. unlock returns it.
func (h *Host) lock(ctx context.Context) error {
	select {
	case h.applying <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Host) unlock() { <-h.applying }

// applyCatalogueLocked is the part of ApplyCatalogue for which the caller holds the
// token of applying.
func (h *Host) applyCatalogueLocked(ctx context.Context) error {
	c, err := h.cfg.Catalogue.Catalogue(ctx)
	if err != nil {
		return err
	}
	x := h.runs.Load()
	if x == nil {
		return nil // Start applies the catalogue before anything runs
	}
	// Pauses and limits are applied even if relinking failed.
	c, failed := h.relink(ctx, x, c)
	if err := x.dispatcher.Control(ctx, append(c.GetObservers(),
		forgotten(c, x.dispatcher.Registered(false))...)); err != nil {
		return errors.Join(failed, err)
	}
	failed = errors.Join(failed, h.rescan(ctx, x))
	return errors.Join(failed, h.workers.apply(ctx, c))
}

// forgotten returns, as retired, those of the observers that have no entry in the
// catalogue although their table is still there: they were retired, and their entry was
// removed before this node read it. One that Start could not enter has no table yet, and is
// left out: no tablet notifies anybody of its column before it is entered.
func forgotten(c *pb.Catalogue, registered []observer.Registered) []*pb.ObserverInfo {
	var out []*pb.ObserverInfo
	for _, o := range registered {
		entered := slices.ContainsFunc(c.GetObservers(), func(i *pb.ObserverInfo) bool {
			return i.Name == o.Spec.Name
		})
		if o.Table == 0 || entered || meta.IsDropped(c, uint32(o.Table)) {
			continue
		}
		info := infoOf(o.Spec, o.Table)
		info.Retired = true
		out = append(out, info)
	}
	return out
}

// ApplyEverywhere returns when every node that is alive has applied the newest catalogue, or with
// an error if this node cannot apply it or ctx ends. A node that is or goes down reads the
// catalogue before it runs anything.
func (h *Host) ApplyEverywhere(ctx context.Context) error {
	// This node first: if meta does not answer it, the others need not be asked.
	if err := h.ApplyCatalogue(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	// All nodes at once: the slowest one determines the duration, not their number.
	for _, node := range h.cfg.Peers.Alive() {
		group.Go(func() error { return h.awaitApplied(ctx, node) })
	}
	return group.Wait()
}

// applyTimeout bounds one request to another node; applyPause is the pause before the
// next.
const (
	applyTimeout = 2 * time.Second
	applyPause   = 50 * time.Millisecond
)

// awaitApplied asks one node until it has applied the catalogue or gossip no longer
// believes it alive. It returns an error only if ctx ends first.
func (h *Host) awaitApplied(ctx context.Context, node uint64) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, applyTimeout)
		_, err := h.cfg.Peers.Call(attempt, node,
			&wire.PeerRequest{Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{}}})
		cancel()
		// A node that is gone reads the catalogue when it comes back.
		if err == nil || !h.cfg.Peers.IsAlive(node) {
			return nil
		}
		if err := txn.Sleep(ctx, applyPause); err != nil {
			return fmt.Errorf("hosting: node %d is alive but has not confirmed the newest policy and observer catalogue: %w",
				node, err)
		}
	}
}

// WakeBackfills makes the node that leads meta look for back-fills. It does not wait. It
// is a hint: without it the back-fills are found a few seconds later.
func (h *Host) WakeBackfills() {
	h.cfg.WakeBackfills()
	// If this node leads meta, or no leader is known, there is no other node to wake.
	if leader := h.cfg.Router.Leader(cluster.MetaTablet); leader != 0 && leader != h.cfg.Self.NodeID {
		req := &wire.PeerRequest{Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{}}}
		h.cfg.Peers.Tell(leader, time.Now().Add(applyTimeout), req,
			func(*wire.PeerResponse, error) {})
	}
}

// waiting returns the catalogue's observers with their pending notifications. It queries meta and
// the tablets, and omits the observers' activity on nodes.
func (h *Host) waiting(ctx context.Context) ([]*pb.ObserverState, error) {
	c, err := h.cfg.Catalogue.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	// The tablets' leaders count what waits, from their notification indexes.
	pending, err := h.cfg.Client.PendingObservers(ctx)
	if err != nil {
		return nil, err
	}
	fills, err := h.cfg.Backfills.Backfills(ctx, c.GetObservers())
	if err != nil {
		return nil, err
	}
	linked, err := h.Linked(ctx)
	if err != nil {
		return nil, err
	}
	// Catalogue, counts, back-fills and links were read one after another. The catalogue decides
	// which observers exist: what the other three contain about further ones is omitted.
	out := make([]*pb.ObserverState, 0, len(c.GetObservers()))
	for _, o := range c.GetObservers() {
		p := pending[o.Name]
		out = append(out, &pb.ObserverState{
			Info: proto.CloneOf(o), Linked: linked[o.Name], Notifications: p.GetNotifications(),
			Parked:  p.GetParked(),
			Intents: p.GetIntents(), OldestTs: p.GetOldestTs(), Backfill: fills[o.Name],
		})
	}
	return out, nil
}

// States returns the work that waits for observers, for the metrics: the present one or, if meta
// and the tablets do not answer within 1 s, the last one known, with its age. ok is false if none
// is known.
func (h *Host) States() (states []*pb.ObserverState, age time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(h.cfg.Life, time.Second)
	defer cancel()
	if states, err := h.waiting(ctx); err == nil {
		h.counted.Set(states)
	} else {
		h.cfg.Node.Logger.Debug("observers could not be counted for the metrics", "error", err)
	}
	return h.counted.Get()
}

// Linked returns the names of the observers that some live node, or a worker of one, runs.
func (h *Host) Linked(ctx context.Context) (map[string]bool, error) {
	if h.cfg.Peers.Alone() { // no request to meta: this node's status must not wait for it
		here := map[string]bool{}
		for _, name := range h.workers.names() {
			here[name] = true
		}
		return here, nil
	}
	return h.cfg.Catalogue.Linked(ctx, h.cfg.Peers.IsAlive)
}
