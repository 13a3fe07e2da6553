package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/replicas"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// tablets are this node's tablets: it owns what all of them share (the writers, readers,
// snapshots, clock), which of them have failed, and what waits to be reported to meta. It
// is the Host of their actors and the Owner of their replicas.
//
// Host's methods are called on the actors' goroutines and must not block: what may take
// time goes to the replicas' workers, to the actor of failures or to that of reports. The
// latter two are apart, since a report waits for meta, and meta may wait to be started.
// Owner's are called by the replicas' workers.
type tablets struct {
	cfg    Config
	node   uint64
	store  *store.Store
	system *actor.ActorSystem
	turns  *actorkit.Dispatcher
	router *route.Router
	others *others
	oracle *localOracle
	policy *clusterPolicy
	// ask gets each request of a tablet to the oracle, see Parts.Oracle; nil: at once.
	ask   func(ask func(), fail func(error))
	moved func() // told that meta has another leader, or the cluster other members
	life  context.Context

	// What start is given: where tablets get timestamps, and report to.
	oracles *route.Oracles
	meta    *meta.Meta

	logs     *tablet.Writers
	readers  *tablet.ReadPool
	sums     *tablet.Checksums
	snapshot *tablet.SnapshotSender
	ticker   *tablet.Ticker
	board    tablet.Board
	replicas *replicas.Set
	reports  *reports
	failures *failures

	mu       sync.Mutex
	starting map[uint64]bool   // tablets of the start that do not lead yet
	all      chan struct{}     // closed when there is none left
	hint     func([]mvcc.Cell) // nil: nobody wants to know
}

var (
	_ tablet.Host    = (*tablets)(nil)
	_ replicas.Owner = (*tablets)(nil)
)

// open makes what tablets need. None runs before start.
func (t *tablets) open(stopped func() bool) {
	logger := t.cfg.Logger
	t.starting, t.all = map[uint64]bool{}, make(chan struct{})
	t.logs = tablet.SpawnWriters(t.system, t.store, t.cfg.Batch.Log, logger, actorkit.On(t.turns))
	t.readers = tablet.NewReadPool(2 * runtime.GOMAXPROCS(0)) // they wait for the disk at times
	t.sums = tablet.NewChecksums(t.store, logger)
	t.snapshot = tablet.NewSnapshotSender(t.others.sendChunk, tablet.SnapshotConfig{
		Rate: t.cfg.Snapshots.Rate, AtOnce: t.cfg.Snapshots.AtOnce, Logger: logger,
	})
	t.ticker = tablet.NewTicker(t.system, tablet.DefaultTick)
	if stopped != nil {
		t.ticker.StopWhile(stopped)
	}
	t.replicas = replicas.New(t, t.store, t.logs, t.node, logger)
	t.failures = newFailures(t.system.Root, logger, t.replicas.Reopen)
	t.reports = newReports(t.system.Root, t.report)
}

// start starts all tablets of the store and waits until those lead that have no other
// replica. Who leads the others is up to their groups.
func (t *tablets) start(ctx context.Context, oracles *route.Oracles, meta *meta.Meta) error {
	t.oracles, t.meta = oracles, meta
	defer context.AfterFunc(ctx, t.logs.GiveUp)()
	err := t.replicas.Start(func(ids []uint64) {
		if t.others.peers == nil {
			for _, id := range ids {
				t.starting[id] = true
			}
		}
		if len(t.starting) == 0 {
			close(t.all)
		}
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node: not all tablets came to lead: %w", ctx.Err())
	}
}

// close ends the tablets, then what they share. Nobody asks them any more.
func (t *tablets) close() error {
	t.logs.GiveUp() // nobody below waits for room on the disk
	errs := []error{t.failures.close(), t.reports.stop()}
	t.replicas.Close()
	for _, id := range t.router.Held() {
		errs = append(errs, t.stop(id))
	}
	t.ticker.Close()
	errs = append(errs, t.logs.Stop())
	t.snapshot.Close()
	t.sums.Close()
	t.readers.Close()
	return errors.Join(errs...)
}

// stop ends the tablet's actor; its callers are answered.
func (t *tablets) stop(id uint64) error {
	return t.system.Root.StopFuture(t.router.Port(id).PID()).Wait()
}

const reportTimeout = 30 * time.Second

// report writes into meta what a tablet says of itself.
func (t *tablets) report(d *pb.TabletDescriptor) {
	ctx, cancel := context.WithTimeout(t.life, reportTimeout)
	defer cancel()
	if err := t.meta.Report(ctx, d); err != nil && t.life.Err() == nil {
		t.cfg.Logger.Warn("a tablet could not be reported to meta; its next start repeats it",
			"tablet", d.TabletId, "error", err)
	}
}

// stampTimeout is how long a tablet waits for timestamps: cells are reserved meanwhile.
const stampTimeout = 3 * time.Second

var errFewTimestamps = errors.New("node: the oracle gave fewer timestamps than were asked for")

// Timestamps implements tablet.Host: commit timestamps of one-phase commits bypass the
// oracle's queue limit, for their cells are reserved already.
func (t *tablets) Timestamps(n int, then func(mvcc.Timestamp, error)) {
	ask := func() {
		t.oracles.Tell(n, time.Now().Add(stampTimeout), true,
			func(first mvcc.Timestamp, got int, err error) {
				if err == nil && got < n {
					err = errFewTimestamps
				}
				then(first, err)
			})
	}
	if t.ask == nil {
		ask()
		return
	}
	t.ask(ask, func(err error) { then(0, err) })
}

// TimestampsNow implements tablet.Host. Only this node's oracle can give them so, and not
// where a part stands between.
func (t *tablets) TimestampsNow(n int) (mvcc.Timestamp, bool) {
	if t.ask != nil {
		return 0, false
	}
	return t.oracle.now(n)
}

// SplitApplied implements tablet.Host. Both sides are routed before the new one is opened:
// who comes too early is told to ask again.
func (t *tablets) SplitApplied(left, right *pb.TabletDescriptor) {
	t.router.Update(left)
	t.router.Update(right)
	t.replicas.SplitApplied(right.TabletId)
	t.reports.add(left)
}

// Leading implements tablet.Host. Whoever looks for the tablet finds it here from now on,
// and meta is told soon.
func (t *tablets) Leading(d *pb.TabletDescriptor) {
	t.router.Update(d)
	t.router.Leads(d.TabletId, t.node)
	if d.TabletId == cluster.MetaTablet {
		t.moved()
	}
	t.reports.add(d)
	t.failures.forget(d.TabletId)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.starting[d.TabletId] {
		return
	}
	if delete(t.starting, d.TabletId); len(t.starting) == 0 {
		close(t.all)
	}
}

// Following implements tablet.Host.
func (t *tablets) Following(id, node uint64) {
	t.router.Follows(id, node)
	if id == cluster.MetaTablet {
		t.moved()
	}
	if node != 0 {
		t.failures.forget(id) // a replica that hears its leader works again
	}
}

// Changed implements tablet.Host. Who leads tells meta: where replicas are is found there.
func (t *tablets) Changed(d *pb.TabletDescriptor) {
	t.router.Update(d)
	if t.router.LeadsHere(d.TabletId) {
		t.reports.add(d)
	}
}

// Failed implements tablet.Host.
func (t *tablets) Failed(id uint64, err error) {
	t.router.Follows(id, 0) // it leads nothing any more
	t.failures.add(id, err)
}

// Removed implements tablet.Host: the replica is destroyed.
func (t *tablets) Removed(id uint64) { t.replicas.RemovedHere(id) }

// SendRaft implements tablet.Host.
func (t *tablets) SendRaft(m *wire.RaftMessage) {
	if p := t.others.peers; p != nil {
		p.Raft(m)
	}
}

// Hint implements tablet.Host.
func (t *tablets) Hint(cells []mvcc.Cell) {
	t.mu.Lock()
	hint := t.hint
	t.mu.Unlock()
	if hint != nil {
		hint(cells)
	}
}

// setHint has hint told of cells that become dirty; nil: nobody is.
func (t *tablets) setHint(hint func([]mvcc.Cell)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hint = hint
}

// OpenReplica implements replicas.Owner. The actor may report before this returns; nobody
// else finds it before it is attached.
func (t *tablets) OpenReplica(id uint64) error {
	cfg := tablet.Config{
		Batch: t.cfg.Batch.Tablet, Limits: t.cfg.Limits, Logger: t.cfg.Logger, Dispatcher: t.turns,
		Snapshots: t.snapshot, Checksums: t.sums, NodeID: t.node, Ticker: t.ticker, Board: &t.board,
	}
	if id == cluster.MetaTablet {
		cfg.Alone = &t.oracle.alone
	}
	port, err := tablet.Spawn(t.system, t.store, t.logs, t.readers, id, t, cfg)
	if err != nil {
		return err
	}
	t.router.Attach(id, port)
	return nil
}

// StopReplica implements replicas.Owner. It waits for the actor, and detaches it only then:
// if that takes too long it may still write, and its port must not be given away.
func (t *tablets) StopReplica(id uint64) error {
	if t.router.Port(id) == nil {
		return nil
	}
	if err := t.stop(id); err != nil {
		return err
	}
	t.router.Detach(id)
	return nil
}

// Destroyed implements replicas.Owner: what had failed of it has nothing left to serve.
func (t *tablets) Destroyed(id uint64) { t.failures.forget(id) }

// Deliver implements replicas.Owner.
func (t *tablets) Deliver(id uint64, m *wire.RaftMessage) {
	if port := t.router.Port(id); port != nil {
		tablet.Receive(t.system, port.PID(), m)
	}
}

// Reread implements replicas.Owner: the router has the tablet map as meta has it.
func (t *tablets) Reread(ctx context.Context) (func(uint64) *pb.TabletDescriptor, error) {
	if err := t.router.Refresh(ctx); err != nil {
		return nil, err
	}
	return t.router.Descriptor, nil
}

// status is what this node's replica of a tablet says of itself; nil if there is none, or
// it does not answer. One that sleeps is not disturbed: a node with a thousand of them is
// asked for all of them every few seconds.
func (t *tablets) status(ctx context.Context, id uint64) *pb.StatusResponse {
	port := t.router.Port(id)
	if port == nil {
		return nil
	}
	if s := t.ticker.LastStatus(id); s != nil {
		return s
	}
	// A tablet that may be half as large as one is split at measures itself: it is to
	// know where by then.
	req := &pb.StatusRequest{MeasureAbove: max(t.policy.now().GetSplitBytes()/2, 1)}
	r, err := port.Ask(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: req}}, true)
	if err != nil {
		return nil
	}
	return r.GetStatus()
}

// statuses asks this node's replicas; leading: those that lead.
func (t *tablets) statuses(ctx context.Context, leading bool) (out []*pb.StatusResponse) {
	for _, d := range t.router.All() {
		if leading && !t.router.LeadsHere(d.TabletId) {
			continue
		}
		if s := t.status(ctx, d.TabletId); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// leadsMeta asks this node's replica of meta for the term in which it leads; 0: it does not.
func (t *tablets) leadsMeta(ctx context.Context) (term uint64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s := t.status(ctx, cluster.MetaTablet)
	if !s.GetLeader() {
		return 0
	}
	return s.Term
}
