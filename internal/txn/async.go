package txn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// Asynchronous commits (docs/adr/0062). A transaction in several tablets is committed once all of its
// cells are locked: each tablet obtains a lower bound of the commit timestamp after it has
// reserved the cells, and the greatest of these bounds is the commit timestamp. So the caller waits
// for one durable round, of all tablets in parallel, and the records follow in the background.
//
// The primary's lock names the other cells. Whoever decides the transaction, this client after a
// failure or another one that has encountered a lock, queries all of them (resolver.decide).

// asyncCommit is the state of a commit in one round. The prewrites, which run in parallel, add
// their results.
type asyncCommit struct {
	sent    atomic.Bool // a prewrite may have been delivered, and may still be accepted
	refused atomic.Bool // a tablet has refused every copy of a prewrite: the set of locks is never complete

	mu       sync.Mutex
	commitTS mvcc.Timestamp // the greatest MinCommitTS so far
	decided  mvcc.Timestamp // others have committed the transaction, at this timestamp
	spare    mvcc.Timestamp // the greatest spare timestamp returned so far (package spares)
}

// tried records the outcome of sending the prewrite of the part. A refusal is final unless an earlier
// copy may have been accepted. ErrDiskFull does not count as delivery: the tablet refuses every
// copy until it has space, and the rollbacks of a settlement would write into its reserve.
func (a *asyncCommit) tried(part *prewritePart, v request.Verdict, err error) {
	switch {
	case v == request.Refused && !part.sent:
		a.refused.Store(true)
	case v != request.Refused && !errors.Is(err, ErrNotSent) && !errors.Is(err, ErrDiskFull):
		part.sent = true
		a.sent.Store(true)
	}
}

// note records an answer that the cells are locked, or are committed already.
func (a *asyncCommit) note(res *pb.MutationResult) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch minCommitTS := res.GetMinCommitTs(); {
	case res.Status == pb.Status_STATUS_COMMITTED:
		a.decided = mvcc.Timestamp(res.CommitTs)
	case minCommitTS == 0:
		return Errorf("%w: a prewrite returned no timestamp: %v", ErrUnavailable, res)
	default:
		a.commitTS = max(a.commitTS, mvcc.Timestamp(minCommitTS))
		a.spare = max(a.spare, mvcc.Timestamp(res.SpareTs))
	}
	return nil
}

// asyncFits reports whether the transaction may commit in one round. Locks without a write keep a
// record of only the newest commit, so that the transaction could not be found there; the
// primary's lock does not name intents; validations need the commit timestamp before the decision.
// Runs of observers commit their last tablet in one phase: they need few messages rather than a
// short latency.
func (p *twoPhase) asyncFits() bool {
	t, cfg := p.t, &p.c.cfg
	if cfg.TwoPhaseOnly || t.written < len(t.writes) || len(t.validations)+len(t.notifies) > 0 ||
		len(t.writes) > mvcc.MaxAsyncCells {
		return false
	}
	bytes := 0
	for i := range t.writes {
		cell := &t.writes[i].cell
		if cell.IsAck() {
			return false
		}
		bytes += len(cell.Row) + len(cell.Column)
	}
	return bytes <= min(mvcc.MaxAsyncBytes, cfg.Limits.Batch/16) && p.c.async.active(p.c)
}

// commitAsync commits the transaction in one round. The outcome after a crash of this process, once
// another transaction encounters the locks:
//
//	a cell is not locked    it gets a rollback record, once the locks have expired: rolled back
//	all cells are locked    committed
func (p *twoPhase) commitAsync(ctx context.Context) (mvcc.Timestamp, error) {
	err := p.commitStart.begin(ctx, p.t)
	if err = cmp.Or(err, p.t.overtaken()); err != nil {
		return 0, err
	}
	p.async = &asyncCommit{}
	p.heartbeat.primary, p.heartbeat.startTS = p.t.writes[0].cell, p.at
	p.c.beats.add(&p.heartbeat)
	defer p.c.beats.remove(&p.heartbeat)
	if err := p.prewriteAll(ctx, p.t.writes, nil); err != nil {
		return p.abandonAsync(ctx, err)
	}
	// It is committed: nothing may fail from here on.
	commitTS := cmp.Or(p.async.decided, p.async.commitTS)
	// Keep a spare timestamp only above commitTS: below it, the next transaction could conflict
	// with this one. A tablet that answers a repeated prewrite returns none.
	if p.async.spare > commitTS {
		p.c.spares.Put(p.async.spare, time.Now())
	}
	return p.committedAsync(commitTS), nil
}

// committedAsync commits the cells in the background.
func (p *twoPhase) committedAsync(commitTS mvcc.Timestamp) mvcc.Timestamp {
	p.c.resolver.remember(p.startTS, commitTS)
	cells, _, _ := p.cells()
	p.finishLater(decision{commitTS: commitTS, cells: cells})
	return commitTS
}

// abandonAsync ends a commit that failed with cause. A prewrite that is still in flight could
// complete the set of locks and so commit the transaction: unless one was refused for good, the
// transaction is decided before the error is returned, or the error wraps ErrCommitUnknown.
func (p *twoPhase) abandonAsync(ctx context.Context, cause error) (mvcc.Timestamp, error) {
	if !p.async.sent.Load() {
		return 0, cause
	}
	final := finallyRefused(cause) || p.async.refused.Load()
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.c.cfg.SettleTimeout)
	defer cancel()
	if final {
		// Nothing can commit the transaction. The caller waits, while its ctx lasts, only so that
		// its next run can resolve the locks at once.
		settle, cancel = context.WithTimeout(ctx, p.c.cfg.SettleTimeout)
		defer cancel()
	}
	cells, _, _ := p.cells()
	out, err := p.c.resolver.decide(settle, p.startTS, cells, false)
	switch {
	case err != nil && !final:
		return 0, Errorf("%w: %s; settling it failed: %w", ErrCommitUnknown, cause.Error(), err)
	case err == nil && out.commitTS != 0:
		return p.committedAsync(out.commitTS), nil
	}
	p.c.stats.RolledBack.Add(1)
	p.c.work.Run(func(ctx context.Context) {
		if err == nil || final {
			err = p.c.router.EachTablet(ctx, cells, nil, resolveRequest(p.startTS, 0), applied)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			p.c.cfg.Logger.Warn("locks left to be resolved", "start_ts", p.startTS, "error", err)
		}
	})
	return 0, cause
}

// finallyRefused reports whether a cell has refused every copy of its prewrite, those still in
// flight too, so that the set of locks is never complete.
func finallyRefused(err error) bool {
	_, conflict := errors.AsType[*ConflictError](err)
	return conflict || errors.Is(err, errRolledBack)
}

// asyncOutcome is what the cells of an asynchronous commit have answered. The zero outcome is that of
// no cells.
type asyncOutcome struct {
	rolledBack  bool
	open        bool           // a cell has neither lock nor record, and may still get its lock
	commitTS    mvcc.Timestamp // of a record, or minCommitTS once all cells are locked; 0: none
	minCommitTS mvcc.Timestamp // the greatest of the transaction's locks
}

// add adds the answer of some cells.
func (o *asyncOutcome) add(res *pb.MutationResult) error {
	switch res.Status {
	case pb.Status_STATUS_OK, pb.Status_STATUS_ROLLED_BACK:
		o.rolledBack = true
	case pb.Status_STATUS_COMMITTED:
		o.commitTS = max(o.commitTS, mvcc.Timestamp(res.CommitTs))
	case pb.Status_STATUS_NOT_FOUND:
		o.open = true
	case pb.Status_STATUS_LIVE:
		o.minCommitTS = max(o.minCommitTS, mvcc.Timestamp(res.MinCommitTs))
		if res.MinCommitTs != 0 {
			return nil
		}
		fallthrough
	default: // below the safepoint nothing can be inferred
		return Errorf("%w: unexpected status of a cell of an asynchronous commit: %v", ErrUnavailable, res.Status)
	}
	return nil
}

// decide decides an asynchronous commit by all of its cells (docs/adr/0062). Unless it only asks, a
// cell without lock and record gets a rollback record, so that the transaction never commits. The
// outcome has a commitTS, is rolledBack, or, if it only asks, is open.
func (r *resolver) decide(ctx context.Context, startTS mvcc.Timestamp, cells []mvcc.Cell,
	ask bool) (asyncOutcome, error) {
	var mu sync.Mutex
	var out asyncOutcome
	err := r.router.EachTablet(ctx, cells, nil, func(cells, _ []mvcc.Cell) *pb.TabletRequest {
		req := rollbackRequest(startTS, cells, nil)
		req.GetRollback().Ask = ask
		return req
	}, func(res *pb.MutationResult) error {
		mu.Lock()
		defer mu.Unlock()
		return out.add(res)
	})
	mu.Lock()
	defer mu.Unlock()
	switch {
	case out.rolledBack && out.commitTS != 0:
		return out, Errorf("%w: transaction %d is committed in one cell and rolled back in another",
			errContradicted, startTS)
	case out.rolledBack || out.commitTS != 0: // one cell's record decides
		return out, nil
	case err != nil:
		return out, err
	case !out.open: // all cells are locked
		out.commitTS = out.minCommitTS
	}
	return out, nil
}

// askCells decides a transaction whose primary has the lock of an asynchronous commit, for a
// caller that has encountered one of its locks. Unless the primary's lock has expired, or its
// worker is dead, it only asks.
func (r *resolver) askCells(ctx context.Context, primary mvcc.LockInfo, expired bool) (commitTS mvcc.Timestamp,
	live bool, err error) {
	cells := append([]mvcc.Cell{primary.Cell}, primary.Lock.Secondaries...)
	out, err := r.decide(ctx, primary.Lock.StartTS, cells, !expired)
	switch {
	case errors.Is(err, ErrPermission): // a node decides the transaction once its lock has expired
		return 0, true, nil
	case err != nil:
		return 0, false, err
	}
	return out.commitTS, out.open && out.commitTS == 0 && !out.rolledBack, nil
}

// AskAsync returns the outcome of a transaction whose primary had the lock of an asynchronous
// commit, and changes nothing, unlike ResolveLock: that ends an expired transaction. Both results
// are zero while it is undecided, and if this client may not query all of its cells.
func (r *resolver) AskAsync(ctx context.Context, primary mvcc.LockInfo) (commitTS mvcc.Timestamp,
	rolledBack bool, err error) {
	// At time 0 no lock has expired, so the check ends nothing.
	check := &pb.CheckTxnStatusRequest{
		Primary: wire.CellPB(primary.Cell), StartTs: uint64(primary.Lock.StartTS),
		MetExpiry: uint64(primary.Lock.Expiry),
	}
	res, err := r.router.Mutate(ctx, request.PosOf(primary.Cell),
		&pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: check}})
	if err == nil && len(res.GetLocks()) > 0 {
		l := wire.LockInfo(res.Locks[0])
		if len(l.Lock.Secondaries) > 0 {
			commitTS, live, err := r.askCells(ctx, l, false)
			return commitTS, err == nil && commitTS == 0 && !live, err
		}
	}
	return mvcc.Timestamp(res.GetCommitTs()), res.GetStatus() == pb.Status_STATUS_ROLLED_BACK, err
}

// asyncGate records whether all nodes of the cluster support asynchronous commits.
type asyncGate struct {
	known func() bool // Config.AsyncCommits; nil: meta is asked
	on    atomic.Bool
	next  atomic.Int64 // Unix seconds before which meta is not asked again
}

// asyncRetry is the minimum interval of the requests for the cluster's version while it is too old
// or unknown.
const asyncRetry = 60 * time.Second

// active reports whether the feature may be used. It requests the version in the background and
// returns false until the answer has arrived.
func (g *asyncGate) active(c *Client) bool {
	if g.known != nil {
		return g.known()
	}
	if g.on.Load() {
		return true
	}
	now := time.Now().Unix()
	if next := g.next.Load(); now < next || !g.next.CompareAndSwap(next, now+int64(asyncRetry/time.Second)) {
		return false
	}
	c.work.Run(func(ctx context.Context) {
		policy, err := c.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
		if err == nil && wire.AsyncCommitsActive(policy.GetPolicy()) {
			g.on.Store(true)
		}
	})
	return false
}
