package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	"github.com/percolator-go/percolator/actors/tablet/replicas"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// tablets owns this node's tablets and their shared parts (writers, readers, snapshots, Raft's
// clock), the record of failed ones, and pending reports to meta. It is the Host of their actors and
// the Owner of their replicas.
//
// The actors call Host's methods on their goroutines, and these must not block: they delegate slow
// work to the replicas' workers or to the actor of reports. The workers reopen failed tablets, never
// reports: a report waits for meta, and meta's own tablet may be the one to reopen. The replicas'
// workers call Owner's methods, which may wait.
//
// Once start has returned, reports, restarts of failed tablets, snapshots and the tasks
// of replicas may be in flight at any time; close ends or joins all of them.
type tablets struct {
	cfg       Config
	node      uint64
	store     *store.Store
	system    *actor.ActorSystem
	turns     *actorkit.Dispatcher
	router    *route.Router
	peerNodes *cluster.PeerNodes
	oracle    *localOracle
	policy    *cluster.PolicyView
	gate      *version.Gate
	liveness  *liveness.Node
	traces    *tracing.Book
	moved     func() // called when meta's leader or the cluster's members have changed
	life      context.Context
	// intercept passes each request for timestamps on, see nodeparts.Parts.Oracle; nil means none.
	intercept func(ask func(), fail func(error))

	// Set by start: the node's own record, the destination of reports, and how to request n
	// timestamps of the oracle's leader, which may return fewer.
	self     *join.Self
	reported *meta.TabletMap
	ask      func(ctx context.Context, n int) (first mvcc.Timestamp, got int, err error)
	asking   sync.WaitGroup // requests for timestamps in flight

	logs      *writers.Pair
	readers   *reads.Pool
	sums      *tablet.Checksums
	snapshot  *snapshot.Sender
	ticker    *tablet.Ticker
	idleHints tablet.IdleHints
	recorded  tablet.RecordBudget // limits the records of changes of all tablets together
	metrics   tablet.Metrics
	replicas  *replicas.Set
	reports   *reports
	failures  *failures

	// discarding is held while the replicas are opened by start, or discarded. It guards opened.
	discarding sync.Mutex
	opened     bool

	first *elections // of the tablets opened by start, on a node that is alone

	mu    sync.Mutex
	alone []uint64          // tablets that discard has kept: nobody else has a replica
	hint  func([]mvcc.Cell) // nil: no receiver
}

var (
	_ tablet.Host    = (*tablets)(nil)
	_ replicas.Owner = (*tablets)(nil)
)

// open creates the shared parts of the tablets. No tablet runs before start. Raft's clock is stopped
// while stopped, unless it is nil, returns true.
func (t *tablets) open(stopped func() bool) {
	logger := t.cfg.Logger
	t.first = newElections()
	t.logs = writers.Spawn(t.system, t.store, actorkit.BatchConfig(t.cfg.Batch.Log), logger, actorkit.On(t.turns))
	// Twice as many readers as processors, because they sometimes wait for the disk.
	t.readers = reads.NewPool(2 * runtime.GOMAXPROCS(0))
	t.sums = tablet.NewChecksums(t.store, logger)
	t.snapshot = snapshot.NewSender(t.store, t.peerNodes.SendChunk, t.cfg.Snapshots.Rate,
		t.cfg.Snapshots.AtOnce)
	t.ticker = tablet.NewTicker(t.system, tablet.DefaultTick)
	if stopped != nil {
		t.ticker.StopWhile(stopped)
	}
	t.replicas = replicas.New(t, t.store, t.logs, t.node, logger)
	t.failures = newFailures(logger, t.replicas.Reopen)
	t.reports = newReports(t.system.Root, t.report)
}

// start opens every replica of the store. On a node that is alone it returns when all of
// them lead; otherwise it does not wait for elections, which depend on other nodes.
func (t *tablets) start(ctx context.Context, self *join.Self, oracles *route.Oracles,
	reported *meta.TabletMap) error {
	t.self, t.reported = self, reported
	// The requests bypass the oracle's queue limit: most are for one-phase commits, whose cells are
	// already reserved.
	t.ask = func(ctx context.Context, n int) (mvcc.Timestamp, int, error) {
		return oracles.Ask(ctx, n, true)
	}
	// On a full disk, replicas wait for space. The end of ctx aborts the wait.
	defer context.AfterFunc(ctx, t.logs.GiveUp)()
	if err := t.openAll(ctx); err != nil {
		return fmt.Errorf("node: open the tablets: %w", err)
	}
	// On a single node, a group with other voters never elects a leader: start then fails when ctx
	// ends.
	return t.first.wait(ctx)
}

// openAll opens every replica of the store. If the node's record requires it, it first marks those
// of an older copy as stale.
func (t *tablets) openAll(ctx context.Context) error {
	t.discarding.Lock()
	defer t.discarding.Unlock()
	if err := t.discardLocked(ctx); err != nil {
		return err
	}
	t.opened = true
	return t.replicas.Start(func(ids []uint64) { // before any replica runs
		if !t.peerNodes.Alone() {
			ids = nil
		}
		t.first.expect(ids)
	})
}

// discard marks the replicas that were in the store when the node started as stale, except those
// that are the only ones of their tablets, if the node's record requires it. It waits until that is
// durable or ctx ends. Before they are opened it does nothing, because start does it. The
// membership service calls it.
func (t *tablets) discard(ctx context.Context) {
	t.discarding.Lock()
	defer t.discarding.Unlock()
	if !t.opened {
		return
	}
	if err := t.discardLocked(ctx); err != nil {
		t.cfg.Logger.Error("cannot discard the replicas of an older copy; the next start will do it",
			"error", err)
	}
}

// discardLocked discards the replicas if the node's record requires it. discarding is held.
func (t *tablets) discardLocked(ctx context.Context) error {
	if !t.self.Discards() {
		return nil
	}
	alone, err := t.replicas.Discard(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.alone = alone
	t.mu.Unlock()
	return t.self.Discarded()
}

// close stops the tablets, then their shared parts. They receive no more requests. failures stops
// first, so that no tablet is reopened during that.
func (t *tablets) close() error {
	t.logs.GiveUp() // writes that wait for disk space fail
	t.failures.close()
	errs := []error{t.reports.stop()}
	t.replicas.Close()
	for _, id := range t.router.Held() {
		errs = append(errs, t.stop(id))
	}
	t.asking.Wait() // not for long: life has ended
	t.ticker.Close()
	errs = append(errs, t.logs.Stop())
	t.snapshot.Close()
	t.sums.Close()
	t.readers.Close()
	return errors.Join(errs...)
}

// stop stops the tablet's actor and waits for it. Pending requests are answered. The node must have
// a port for the tablet.
func (t *tablets) stop(id uint64) error {
	return t.system.Root.StopFuture(t.router.Port(id).PID()).Wait()
}

// reportTimeout limits the writing of one report.
const reportTimeout = 30 * time.Second

// report writes a tablet's descriptor into meta's tablet map. The actor of reports calls it. An error
// is only logged: the tablet reports again when it changes or next elects a leader.
func (t *tablets) report(d *pb.TabletDescriptor) {
	ctx, cancel := context.WithTimeout(t.life, reportTimeout)
	defer cancel()
	if err := t.reported.Report(ctx, d); err != nil && t.life.Err() == nil {
		t.cfg.Logger.Warn("cannot report a tablet to meta; its next leader will",
			"tablet", d.TabletId, "error", err)
	}
}

// SplitApplied implements tablet.Host. It updates the routes of both sides before the new one is
// opened, so that no request goes to the left side for rows that it no longer has. A request for the
// right side that arrives too early is refused as retryable.
func (t *tablets) SplitApplied(left, right *pb.TabletDescriptor) {
	t.router.Update(left)
	t.router.Update(right)
	t.replicas.SplitApplied(right.TabletId)
	t.reports.add(left)
}

// Leading implements tablet.Host. It routes this node's requests to the replica, which has been
// elected, and has the actor of reports record it in meta for other nodes.
func (t *tablets) Leading(d *pb.TabletDescriptor) {
	t.router.Update(d)
	t.router.SetLeading(d.TabletId, t.node)
	if d.TabletId == cluster.MetaTablet {
		t.moved()
	}
	t.reports.add(d)
	t.failures.forget(d.TabletId)
	t.first.elected(d.TabletId)
}

// Following implements tablet.Host. It records that the replica follows the leader on node; 0 means
// that it knows no leader.
func (t *tablets) Following(id, node uint64) {
	t.router.SetFollowing(id, node)
	if id == cluster.MetaTablet {
		t.moved()
	}
	if node != 0 {
		t.failures.forget(id) // a replica that receives from its leader works again
	}
}

// Changed implements tablet.Host. It records the tablet's new descriptor; the leader's node also reports
// it to meta.
func (t *tablets) Changed(d *pb.TabletDescriptor) {
	t.router.Update(d)
	if t.router.LeadsHere(d.TabletId) {
		t.reports.add(d)
	}
}

// Failed implements tablet.Host. It records that the replica has stopped; failures may reopen it.
func (t *tablets) Failed(id uint64, err error) {
	t.router.SetFollowing(id, 0) // the replica no longer leads
	t.failures.add(id, err)
}

// Removed implements tablet.Host. It has the replica, which its group has removed, destroyed.
func (t *tablets) Removed(id uint64) { t.replicas.RemovedHere(id) }

// Stale implements tablet.Host. It records that the replica is inactive until its group removes it.
func (t *tablets) Stale(id uint64) {
	t.router.SetFollowing(id, 0)
	t.replicas.Stale(id)
}

// stale returns the counts of the replicas that are stale now and of those found stale since the
// node started, and the tablets that discard has kept; nil if there are none of these.
func (t *tablets) stale() *pb.StaleStatus {
	st := t.replicas.Stats()
	t.mu.Lock()
	alone := t.alone // never modified
	t.mu.Unlock()
	if st.Found == 0 && len(alone) == 0 {
		return nil
	}
	return &pb.StaleStatus{Waiting: uint32(st.Stale), Found: uint32(st.Found), Alone: alone}
}

// SendRaft implements tablet.Host. On a single node it drops the message.
func (t *tablets) SendRaft(m *wire.RaftMessage) {
	t.peerNodes.SendRaft(m)
}

// Merging implements tablet.Host. It updates the router before the merged tablet is opened; a
// request that arrives too early is refused as retryable.
func (t *tablets) Merging(m *snapshot.Merge) {
	t.router.Update(m.Merged)
	t.replicas.Merge(m)
}

// Hint implements tablet.Host. It calls the hint function without holding the lock.
func (t *tablets) Hint(cells []mvcc.Cell) {
	t.mu.Lock()
	hint := t.hint
	t.mu.Unlock()
	if hint != nil {
		hint(cells)
	}
}

// setHint sets the function to call with cells that become dirty; nil means none. A call of the
// previous function may still be running when setHint returns.
func (t *tablets) setHint(hint func([]mvcc.Cell)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hint = hint
}

// OpenReplica implements replicas.Owner. The actor may call Host before OpenReplica
// returns; requests reach it only once it is attached to the router.
func (t *tablets) OpenReplica(id uint64, stale bool) error {
	cfg := tablet.Config{
		Batch: actorkit.BatchConfig(t.cfg.Batch.Tablet), Limits: mvcc.Limits(t.cfg.Limits), Logger: t.cfg.Logger, Dispatcher: t.turns,
		Snapshots: t.snapshot, Checksums: t.sums, NodeID: t.node, Ticker: t.ticker, IdleHints: &t.idleHints,
		Leases: t.liveness, Recorded: &t.recorded, Metrics: &t.metrics, Traces: t.traces, Stale: stale,
		Origins: func() bool { return t.gate.Writes(version.Origins) },
	}
	// Only meta's leadership counts for the oracle.
	if id == cluster.MetaTablet {
		cfg.Leadership = &t.oracle.metaLeadership
	}
	port, err := tablet.Spawn(t.system, t.store, t.logs, t.readers, id, t, cfg)
	if err != nil {
		return err
	}
	t.router.Attach(id, port)
	return nil
}

// StopReplica implements replicas.Owner. It stops the actor, waits for it and detaches its port. If
// the wait fails the actor may still write, so its port stays attached and no second actor can be
// opened.
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

// Destroyed implements replicas.Owner. A destroyed replica no longer counts as failed, and the
// leader to which it bound itself is forgotten (docs/adr/0060): it never votes again, and no
// configuration in which a later replica of its group on this node votes is adjacent to one that it
// belonged to.
func (t *tablets) Destroyed(id uint64) {
	t.failures.forget(id)
	t.liveness.Fortify(id, 0, 0)
}

// Deliver implements replicas.Owner. It drops a message for a replica that does not run; Raft
// repeats it.
func (t *tablets) Deliver(id uint64, m *wire.RaftMessage) {
	if port := t.router.Port(id); port != nil {
		tablet.Receive(t.system, port.PID(), m)
	}
}

// Reread implements replicas.Owner. It refreshes the router from meta and returns the router's
// lookup of the newest descriptor of a tablet.
func (t *tablets) Reread(ctx context.Context) (func(*pb.TabletDescriptor) *pb.TabletDescriptor, error) {
	if err := t.router.Refresh(ctx); err != nil {
		return nil, err
	}
	return t.router.Now, nil
}

// status returns the status of this node's replica of a tablet, or nil if there is none or it does
// not answer. It does not wake a quiescent replica but returns its last status: a node may have a
// thousand of them, all of which are polled every few seconds.
func (t *tablets) status(ctx context.Context, id uint64) *pb.StatusResponse {
	port := t.router.Port(id)
	if port == nil {
		return nil
	}
	if s := t.ticker.LastStatus(id); s != nil {
		return s
	}
	// A tablet larger than half of the split size measures its rows, so that it knows a split row by
	// the time it must split.
	req := &pb.StatusRequest{MeasureAbove: max(t.policy.Now().GetSplitBytes()/2, 1)}
	r, err := port.Ask(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: req}}, true)
	if err != nil {
		return nil
	}
	return r.GetStatus()
}

// statuses returns the statuses of this node's replicas in range order, queried one after another;
// leading: only of leaders. Replicas that do not answer before ctx ends are omitted.
func (t *tablets) statuses(ctx context.Context, leading bool) (out []*pb.StatusResponse) {
	// Not the tablet map: it may lack a tablet that has had no leader since the node started.
	for _, id := range t.router.Held() {
		if leading && !t.router.LeadsHere(id) {
			continue
		}
		if s := t.status(ctx, id); s != nil {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *pb.StatusResponse) int { return route.ByStart(a.Tablet, b.Tablet) })
	return out
}

// leadsMeta returns the term in which this node's replica of meta leads, or 0 if it does not lead or
// does not answer within 1 s.
func (t *tablets) leadsMeta(ctx context.Context) (term uint64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s := t.status(ctx, cluster.MetaTablet)
	if !s.GetLeader() {
		return 0
	}
	return s.Term
}
