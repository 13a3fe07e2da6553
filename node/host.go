package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/oracle"
	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/replicas"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// host is what the tablets of this node see of it, and the actors that start tablets and
// report them to meta: work that may block and must not do so on a tablet's goroutine.
// Reports have an actor of their own: they wait for meta, and meta may wait to be
// started.
type host struct {
	n       *Node
	pid     *actor.PID
	reports *reports

	mu       sync.Mutex
	starting map[uint64]bool   // tablets of the start that do not lead yet
	all      chan struct{}     // closed when there is none left
	hint     func([]mvcc.Cell) // nil: nobody wants to know
	failed   map[uint64]error  // tablets that have stopped and do not serve again

	reopens reopenings // the actor's own
}

var (
	_ tablet.Host    = (*host)(nil)
	_ replicas.Owner = (*host)(nil)
)

func newHost(n *Node) *host {
	h := &host{
		n: n, starting: map[uint64]bool{}, failed: map[uint64]error{}, reopens: reopenings{}, all: make(chan struct{}),
	}
	h.pid = n.system.Root.Spawn(actor.PropsFromFunc(h.receive))
	h.reports = newReports(n.system.Root, h.report)
	return h
}

func (h *host) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *failedTablet:
		h.onFailed(m)
	case *pausedTablet:
		h.onPaused(m)
	case *actor.Stopping:
		h.reopens.stop()
	}
}

// start starts a tablet that the store has, unless it is here already.
func (h *host) start(id uint64) {
	if h.n.router.Port(id) != nil {
		return
	}
	h.n.replicas.SplitApplied(id)
}

// report writes into meta what a tablet says of itself.
func (h *host) report(d *pb.TabletDescriptor) {
	ctx, cancel := context.WithTimeout(h.n.life, reportTimeout)
	defer cancel()
	if err := h.n.meta.Report(ctx, d); err != nil && h.n.life.Err() == nil {
		h.n.cfg.Logger.Warn("a tablet could not be reported to meta; its next start repeats it", "tablet", d.TabletId, "error", err)
	}
}

const reportTimeout = 30 * time.Second

// Timestamps implements tablet.Host: commit timestamps of one-phase commits bypass the
// oracle's queue limit, for their cells are reserved already.
func (h *host) Timestamps(n int, then func(mvcc.Timestamp, error)) {
	h.n.parts.oracle(func() { h.timestamps(n, then) }, func(err error) { then(0, err) })
}

func (h *host) timestamps(n int, then func(mvcc.Timestamp, error)) {
	h.n.oracles.Tell(n, time.Now().Add(stampTimeout), true, func(first mvcc.Timestamp, got int, err error) {
		if err == nil && got < n {
			err = errFewTimestamps
		}
		then(first, err)
	})
}

// stampTimeout is how long a tablet waits for timestamps: cells are reserved meanwhile.
const stampTimeout = 3 * time.Second

var errFewTimestamps = errors.New("node: the oracle gave fewer timestamps than were asked for")

// TimestampsNow implements tablet.Host.
func (h *host) TimestampsNow(n int) (mvcc.Timestamp, bool) {
	if h.n.parts.Oracle != nil {
		return 0, false
	}
	return h.n.timestampsNow(n)
}

// timestampsNow asks this node's oracle for what it can give at once.
func (n *Node) timestampsNow(count int) (mvcc.Timestamp, bool) {
	o := n.oracleNow.Load()
	if o == nil {
		return 0, false
	}
	return o.Now(count)
}

// SplitApplied implements tablet.Host.
func (h *host) SplitApplied(left, right *pb.TabletDescriptor) {
	h.n.router.Update(left)
	h.n.router.Update(right)
	h.n.replicas.SplitApplied(right.TabletId)
	h.reports.add(left)
}

// Leading implements tablet.Host.
func (h *host) Leading(d *pb.TabletDescriptor) {
	h.n.router.Update(d)
	h.n.router.Leads(d.TabletId, h.n.identity.NodeID)
	if d.TabletId == cluster.MetaTablet {
		h.n.changes.wake()
	}
	h.reports.add(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failed, d.TabletId)
	if !h.starting[d.TabletId] {
		return
	}
	if delete(h.starting, d.TabletId); len(h.starting) == 0 {
		close(h.all)
	}
}

// Following implements tablet.Host.
func (h *host) Following(id, node uint64) {
	h.n.router.Follows(id, node)
	if id == cluster.MetaTablet {
		h.n.changes.wake()
	}
	if node != 0 {
		h.recovered(id) // a replica that hears its leader works again
	}
}

// Changed implements tablet.Host. Who leads tells meta: where replicas are is found there.
func (h *host) Changed(d *pb.TabletDescriptor) {
	h.n.router.Update(d)
	if h.n.router.LeadsHere(d.TabletId) {
		h.reports.add(d)
	}
}

// Removed implements tablet.Host: the replica is destroyed.
func (h *host) Removed(id uint64) { h.n.replicas.RemovedHere(id) }

// SendRaft implements tablet.Host.
func (h *host) SendRaft(m *wire.RaftMessage) {
	if h.n.peers != nil {
		h.n.peers.Raft(m)
	}
}

// startOthers starts what the store has and nobody has started.
func (h *host) startOthers() {
	// The panic may have come between a split and the word of it.
	stored, err := h.n.storedTablets()
	if err != nil {
		h.n.cfg.Logger.Error("tablets that a split has made could not be looked for", "error", err)
	}
	for _, id := range stored {
		h.start(id)
	}
}

// Hint implements tablet.Host.
func (h *host) Hint(cells []mvcc.Cell) {
	h.mu.Lock()
	hint := h.hint
	h.mu.Unlock()
	if hint != nil {
		hint(cells)
	}
}

// recovered forgets how a tablet's replica has failed: it works again, or is destroyed
// and has nothing left to serve.
func (h *host) recovered(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failed, id)
}

// failure is why a tablet of this node does not serve; nil if all do.
func (h *host) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, err := range h.failed {
		return err
	}
	return nil
}

func (h *host) setHint(hint func([]mvcc.Cell)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hint = hint
}

// OpenReplica implements replicas.Owner.
func (h *host) OpenReplica(id uint64) error {
	n := h.n
	port, err := tablet.Spawn(n.system, n.store, n.logs, n.readers, id, h, tablet.Config{
		Batch: n.cfg.Batch.Tablet, Limits: n.cfg.Limits, Logger: n.cfg.Logger, Dispatcher: n.turns, Alone: n.alone(id),
		Snapshots: n.snapshot, Checksums: n.sums,
		NodeID: n.identity.NodeID, Ticker: n.ticker, Board: &n.board,
	})
	if err != nil {
		return err
	}
	n.router.Attach(id, port)
	return nil
}

// StopReplica implements replicas.Owner.
func (h *host) StopReplica(id uint64) error {
	if h.n.router.Port(id) == nil {
		return nil
	}
	if err := h.n.stopTablet(id); err != nil {
		return err
	}
	h.n.router.Detach(id)
	return nil
}

// Destroyed implements replicas.Owner.
func (h *host) Destroyed(id uint64) { h.recovered(id) }

// Deliver implements replicas.Owner.
func (h *host) Deliver(id uint64, m *wire.RaftMessage) {
	if port := h.n.router.Port(id); port != nil {
		tablet.Receive(h.n.system, port.PID(), m)
	}
}

// Reread implements replicas.Owner.
func (h *host) Reread(ctx context.Context) (func(uint64) *pb.TabletDescriptor, error) {
	if err := h.n.router.Refresh(ctx); err != nil {
		return nil, err
	}
	return h.n.router.Descriptor, nil
}

// stopTablet ends the tablet's actor; its callers are answered.
func (n *Node) stopTablet(id uint64) error {
	return n.system.Root.StopFuture(n.router.Port(id).PID()).Wait()
}

// storedTablets lists the tablets that the store has state of.
func (n *Node) storedTablets() (ids []uint64, err error) {
	snap := n.store.Snap()
	defer snap.Close()
	for e, err := range snap.TabletStates() {
		if err != nil {
			return nil, fmt.Errorf("node: list the store's tablets: %w", err)
		}
		ids = append(ids, e.Tablet)
	}
	return ids, nil
}

// startTablets starts all tablets of the store and waits until those lead that have no
// other replica. Who leads the others is up to their groups.
func (n *Node) startTablets(ctx context.Context) error {
	defer context.AfterFunc(ctx, n.logs.GiveUp)()
	err := n.replicas.Start(func(ids []uint64) {
		if n.peers == nil {
			for _, id := range ids {
				n.host.starting[id] = true
			}
		}
		if len(n.host.starting) == 0 {
			close(n.host.all)
		}
	})
	if err != nil {
		return err
	}
	select {
	case <-n.host.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node: not all tablets came to lead: %w", ctx.Err())
	}
}

// metaMark is the meta tablet as the oracle sees it.
type metaMark struct {
	router *cluster.Router
	alone  *tablet.Alone
}

// Confirmed implements oracle.Meta.
func (m metaMark) Confirmed() (term, mark uint64, ok bool) { return m.alone.Confirmed() }

// alone is where the meta tablet tells the oracle that it leads as its group's only
// voter; nil for other tablets.
func (n *Node) alone(id uint64) *tablet.Alone {
	if id != cluster.MetaTablet {
		return nil
	}
	return &n.metaAlone
}

// Mark implements oracle.Meta.
func (m metaMark) Mark(raiseTo uint64, then func(term, mark uint64, err error)) {
	port := m.router.Port(cluster.MetaTablet)
	if port == nil {
		then(0, 0, &cluster.NotLeader{Leader: m.router.Leader(cluster.MetaTablet)})
		return
	}
	req := &pb.TabletRequest{Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: raiseTo}}}
	err := port.Tell(req, time.Time{}, true, func(r actorkit.Result[*pb.TabletResponse]) {
		switch e := r.Value.GetError(); {
		case r.Err != nil:
			then(0, 0, r.Err)
		case e.GetCode() == pb.Error_CODE_NOT_LEADER:
			then(0, 0, &cluster.NotLeader{Leader: e.LeaderNode})
		case e.GetCode() == pb.Error_CODE_DISK_FULL:
			then(0, 0, fmt.Errorf("%w: %s", oracle.ErrNoRoom, e.Message))
		case e != nil:
			then(0, 0, fmt.Errorf("meta tablet: %s", e.Message))
		default:
			then(r.Value.GetMark().GetTerm(), r.Value.GetMark().GetMark(), nil)
		}
	})
	if err != nil {
		then(0, 0, err)
	}
}
