package txn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/background"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// maxDecisions is the maximum number of cached decisions.
	maxDecisions = 4096
	// maxResolveRounds is the number of times that a commit resolves the locks in the way of one
	// message before it fails with ErrLocked.
	maxResolveRounds = 8
	// MaxMet is the maximum number of locked cells that a status check names, for the node to
	// resolve in place of a client without that permission.
	MaxMet = 16
)

// resolver resolves locks that block reads and commits (design section 4, "The primary decides").
// Callers blocked by one transaction share a resolution (resolutionKey): a wait, a status check
// at the primary, and the resolution of the encountered locks.
//
// A dead transaction may have left thousands of locks, and one lock may block hundreds of
// readers. Without sharing, each of them would ask the same primary, just when its tablet
// is busiest.
type resolver struct {
	cfg       *Config
	transport Transport
	router    *request.Router
	oracle    *request.Oracle
	work      *background.Group
	worker    mvcc.Worker // this process

	met, checked, rolledForward, rolledBack, settled atomic.Uint64 // counters

	mu          sync.Mutex
	resolutions map[resolutionKey]*resolution
	// decided maps start_ts to commit_ts; 0 means rolled back. It has at most maxDecisions
	// entries.
	decided map[mvcc.Timestamp]mvcc.Timestamp
}

// resolutionKey is the blocking transaction, and whether the resolution waits first. Callers
// that must not wait share a separate resolution.
type resolutionKey struct {
	startTS mvcc.Timestamp
	wait    bool
}

// resolution is one round of work on one blocking transaction. The resolver's mu guards met,
// taken and waiters.
type resolution struct {
	key     resolutionKey
	met     []mvcc.LockInfo
	taken   bool // met is being resolved, or the round has ended: later callers start a new one
	waiters int
	cancel  context.CancelFunc
	done    chan struct{}
	live    bool  // the transaction may be alive; set before done is closed
	err     error // set before done is closed
}

func newResolver(cfg *Config, transport Transport, router *request.Router, oracle *request.Oracle,
	work *background.Group) *resolver {
	return &resolver{
		cfg: cfg, transport: transport, router: router, oracle: oracle, work: work,
		worker:      transport.Worker(),
		resolutions: make(map[resolutionKey]*resolution), decided: make(map[mvcc.Timestamp]mvcc.Timestamp),
	}
}

// resolve does one round for each of the locks' transactions: it resolves the locks of a
// transaction that is decided, has expired or is of a dead worker. live reports whether another of
// the transactions may be alive; then a caller that may wait calls again with a higher round, which
// makes the wait longer. With wait false, for callers that hold locks, there is no wait.
func (r *resolver) resolve(ctx context.Context, locks []mvcc.LockInfo, round int,
	wait bool) (live bool, err error) {
	r.met.Add(uint64(len(locks)))
	var joined []*resolution
	r.mu.Lock()
	for _, l := range locks {
		f := r.join(l, round, wait)
		if len(joined) == 0 || joined[len(joined)-1] != f {
			f.waiters++
			joined = append(joined, f)
		}
	}
	r.mu.Unlock()
	for _, f := range joined {
		select {
		case <-f.done:
			live = live || f.live
			if f.err != nil && err == nil {
				err = f.err
			}
		case <-ctx.Done():
			err = coded.Mark(Errorf("resolve the lock of another transaction: %w", ctx.Err()), ErrLocked)
		}
	}
	r.leave(joined)
	return live, err
}

// join adds the lock to its transaction's resolution, which it starts if there is none. The
// caller holds mu.
func (r *resolver) join(l mvcc.LockInfo, round int, wait bool) *resolution {
	key := resolutionKey{l.Lock.StartTS, wait}
	f := r.resolutions[key]
	if f != nil && !f.taken {
		for _, m := range f.met {
			if m.Cell == l.Cell && m.Intent == l.Intent {
				return f
			}
		}
		f.met = append(f.met, l)
		return f
	}
	// The resolution runs under the client's context: the first caller's may end long before
	// the others'.
	f = &resolution{key: key, met: []mvcc.LockInfo{l}, done: make(chan struct{})}
	var ctx context.Context
	ctx, f.cancel = context.WithTimeout(r.work.Context(), r.cfg.OperationTimeout)
	r.resolutions[key] = f
	done := r.work.Begin()
	go func() {
		defer done()
		r.run(ctx, f, l, round)
	}()
	return f
}

// leave removes a waiter from each of the resolutions, and cancels those that have none left.
func (r *resolver) leave(joined []*resolution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range joined {
		if f.waiters--; f.waiters == 0 {
			f.cancel()
			r.seal(f)
		}
	}
}

// seal prevents further callers from joining the resolution. The caller holds mu.
func (r *resolver) seal(f *resolution) {
	f.taken = true
	if r.resolutions[f.key] == f {
		delete(r.resolutions, f.key)
	}
}

// run does the resolution's one round and wakes its waiters.
func (r *resolver) run(ctx context.Context, f *resolution, l mvcc.LockInfo, round int) {
	f.live, f.err = r.round(ctx, f, l, round)
	r.mu.Lock()
	r.seal(f)
	r.mu.Unlock()
	f.cancel()
	close(f.done)
}

// round waits, checks the primary and resolves, as far as each is needed.
func (r *resolver) round(ctx context.Context, f *resolution, l mvcc.LockInfo,
	round int) (live bool, err error) {
	commitTS, known := r.Decided(l.Lock.StartTS)
	if !known {
		dead := l.Lock.Worker != r.worker && r.transport.WorkerDead(ctx, l.Lock.Worker)
		// Most encountered locks belong to commits that end within about a millisecond. For an
		// expired lock, or one of a dead worker, check the status at once; wait only if the
		// check finds the transaction alive: heartbeats extend only the primary.
		b := request.Backoff(round)
		first := f.key.wait && !dead && r.oracle.Estimate() <= l.Lock.Expiry
		if first {
			if err := Sleep(ctx, b.Next()); err != nil {
				return true, err
			}
		}
		commitTS, live, err = r.ask(ctx, l, dead, r.locksMet(f))
		if err == nil && live && f.key.wait && !first {
			err = Sleep(ctx, b.Next())
		}
		if err != nil || live {
			return live, err
		}
		r.remember(l.Lock.StartTS, commitTS)
	}
	// Seal first: a lock that joined later would be reported resolved without having been.
	r.mu.Lock()
	f.taken = true
	met := f.met
	r.mu.Unlock()
	err = r.apply(ctx, l.Lock.StartTS, commitTS, met)
	if f.key.wait && errors.Is(err, ErrPermission) {
		// This client may only read. It waits for the lock's owner or other clients, and
		// checks again: its node resolves the locks once they have expired.
		r.mu.Lock()
		delete(r.decided, l.Lock.StartTS)
		r.mu.Unlock()
		b := request.Backoff(round)
		return true, Sleep(ctx, b.Next())
	}
	return false, err
}

// locksMet returns the cells of up to MaxMet of the resolution's locks, for the node to
// resolve (CheckTxnStatusRequest.met). It skips intents, which block no transaction.
func (r *resolver) locksMet(f *resolution) (met []*pb.Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range f.met {
		if !m.Intent && len(met) < MaxMet {
			met = append(met, wire.CellPB(m.Cell))
		}
	}
	return met
}

// ask checks the transaction's status at its primary, by the oracle's time. Unless it is live, a
// commitTS of 0 means rolled back.
func (r *resolver) ask(ctx context.Context, l mvcc.LockInfo, dead bool,
	met []*pb.Cell) (commitTS mvcc.Timestamp, live bool, err error) {
	// Whether a lock has expired is decided by the oracle's time, never by this machine's
	// (design section 4, "A missing primary is not a rollback").
	now, err := r.oracle.Get(ctx)
	if err != nil {
		return 0, false, err
	}
	r.checked.Add(1)
	check := &pb.CheckTxnStatusRequest{
		Primary: wire.CellPB(l.Lock.Primary), StartTs: uint64(l.Lock.StartTS), Now: uint64(now),
		MetExpiry: uint64(l.Lock.Expiry), WorkerDead: dead, Met: met,
	}
	res, err := r.router.Mutate(ctx, request.PosOf(l.Lock.Primary),
		&pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: check}})
	if err != nil {
		return 0, false, err
	}
	switch res.Status {
	case pb.Status_STATUS_COMMITTED:
		return mvcc.Timestamp(res.CommitTs), false, nil
	case pb.Status_STATUS_ROLLED_BACK:
		return 0, false, nil
	case pb.Status_STATUS_LIVE:
		if len(res.Locks) > 0 && res.Locks[0].GetLock().GetMinCommitTs() != 0 {
			primary := wire.LockInfo(res.Locks[0])
			return r.askCells(ctx, primary, dead || now >= primary.Lock.Expiry)
		}
		return 0, true, nil
	case pb.Status_STATUS_LOCKED, pb.Status_STATUS_UNKNOWN:
		// locked: the primary is being prewritten or committed in one phase. unknown: below the
		// safepoint a missing record proves nothing, but locks older than it were resolved before
		// it rose. The caller looks at the lock again.
		return 0, true, nil
	default:
		return 0, false, Errorf("%w: unexpected status of a status check: %v", ErrUnavailable, res.Status)
	}
}

// apply resolves the encountered locks by the primary's decision.
func (r *resolver) apply(ctx context.Context, startTS, commitTS mvcc.Timestamp,
	met []mvcc.LockInfo) error {
	var cells, intents []mvcc.Cell
	for _, m := range met {
		if m.Intent {
			intents = append(intents, m.Cell)
		} else {
			cells = append(cells, m.Cell)
		}
	}
	if commitTS != 0 {
		r.rolledForward.Add(uint64(len(met)))
	} else {
		r.rolledBack.Add(uint64(len(met)))
	}
	return r.router.EachTablet(ctx, cells, intents, resolveRequest(startTS, commitTS), applied)
}

// errContradicted means that a cell was committed although its primary is rolled back, or that it
// has a record above the commit timestamp of its primary.
var errContradicted = NewError("a cell contradicts the decision of its primary")

// applied returns an error unless the answer to a message that applies a decision, a Rollback or
// a ResolveLock, is OK. After any other answer locks may remain.
func applied(res *pb.MutationResult) error {
	switch res.Status {
	case pb.Status_STATUS_OK:
		return nil
	case pb.Status_STATUS_COMMITTED, pb.Status_STATUS_COMMIT_TS_TOO_LOW:
		return Errorf("%w: response %v", errContradicted, res)
	}
	return Errorf("%w: unexpected status of a decision: %v", ErrUnavailable, res.Status)
}

// resolveRequest returns a function that builds the messages which apply a decision.
func resolveRequest(startTS, commitTS mvcc.Timestamp) func(cells, intents []mvcc.Cell) *pb.TabletRequest {
	return func(cells, intents []mvcc.Cell) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{ResolveLock: &pb.ResolveLockRequest{
			StartTs: uint64(startTS), CommitTs: uint64(commitTS), Cells: wire.CellsPB(cells),
			Intents: wire.CellsPB(intents),
		}}}
	}
}

// Decided returns the cached decision of a transaction whose locks this client has encountered, or
// that it has committed asynchronously: its commit timestamp, or 0 if it was rolled back. Decisions
// never change, but the cache is bounded, so known is false for evicted ones too.
func (r *resolver) Decided(startTS mvcc.Timestamp) (commitTS mvcc.Timestamp, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	commitTS, known = r.decided[startTS]
	return commitTS, known
}

// remember caches a decision for callers that encounter other locks of the transaction.
func (r *resolver) remember(startTS, commitTS mvcc.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.decided) >= maxDecisions {
		clear(r.decided)
	}
	r.decided[startTS] = commitTS
}

// ResolveLock does one round of resolution for a lock or intent, without waiting first, for
// scanners and tools. resolved is false if the transaction may be alive.
func (r *resolver) ResolveLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error) {
	live, err := r.resolve(ctx, []mvcc.LockInfo{l}, 0, false)
	return err == nil && !live, err
}

// ResolveAt does one round of resolution for the transaction's lock on the cell, if there is
// one. live reports whether the transaction is alive. Nodes call it for clients that have
// encountered the lock but may not end it: it reads the lock itself, so that it need not trust
// the client.
func (r *resolver) ResolveAt(ctx context.Context, cell mvcc.Cell,
	startTS mvcc.Timestamp) (live bool, err error) {
	l, there, err := r.router.LockAt(ctx, cell)
	if err != nil || !there || l.Lock.StartTS != startTS {
		return false, err
	}
	resolved, err := r.ResolveLock(ctx, l)
	return err == nil && !resolved, err
}

// ForceLock is like ResolveLock but treats the lock's transaction as dead. If it is undecided,
// ForceLock rolls it back at its primary, which makes its commit fail (a wrong report of a death
// costs an abort, never correctness). resolved is false while a one-phase commit of it is in
// flight, or if its outcome can no longer be determined.
func (r *resolver) ForceLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error) {
	commitTS, known := r.Decided(l.Lock.StartTS)
	if !known {
		var live bool
		if commitTS, live, err = r.ask(ctx, l, true, nil); err != nil || live {
			return false, err
		}
		r.remember(l.Lock.StartTS, commitTS)
	}
	err = r.apply(ctx, l.Lock.StartTS, commitTS, []mvcc.LockInfo{l})
	return err == nil, err
}

// clearAway resolves the locks that a commit has encountered, without waiting, because the caller
// may hold locks. The error wraps ErrLocked: one of the transactions is alive, that is not known,
// or rounds has reached maxResolveRounds.
func (r *resolver) clearAway(ctx context.Context, locks []mvcc.LockInfo, rounds int) error {
	if len(locks) == 0 || rounds >= maxResolveRounds {
		return ErrLocked
	}
	// If the lock's owner has just committed its primary, rolling the lock forward here saves
	// a retry of the whole transaction.
	live, err := r.resolve(ctx, locks, rounds, false)
	if err != nil {
		return coded.Mark(Errorf("not committed: resolve %d locks, the first in row %q: %w",
			len(locks), locks[0].Cell.Row, err), ErrLocked)
	}
	if live {
		return Errorf("%w: row %q", ErrLocked, locks[0].Cell.Row)
	}
	return nil
}

// undecided is the error of a commit that ends although a copy of the message that decides it
// may still be in flight. Commit tries to settle it before it returns.
type undecided struct {
	cause  error // reason for ErrCommitUnknown if settling fails
	fenced error // error of Commit after a rollback
}

// Error returns the text of the cause.
func (u *undecided) Error() string { return u.cause.Error() }

// lost returns the undecided of a message that was not answered or was answered unexpectedly.
func lost(err error) error { return &undecided{cause: err, fenced: errFenced} }

// givenUp returns the undecided of a commit that ends with err although its message was
// answered. If settling fails, Commit's error must not wrap err, which may mean that nothing
// was committed.
func givenUp(err error) error {
	return &undecided{cause: errors.New(err.Error()), fenced: err}
}

// settle decides an undecided commit by a Rollback at the primary. It returns the commit
// timestamp, or u.fenced if the transaction can never commit (design section 4, "Unknown is
// unknown"). SettleTimeout, not the caller's context, bounds it; if it fails, the error wraps
// ErrCommitUnknown.
func (r *resolver) settle(ctx context.Context, primary mvcc.Cell, startTS mvcc.Timestamp,
	u *undecided) (commitTS mvcc.Timestamp, err error) {
	// The end of the caller's context is often the reason why the commit is undecided, so
	// settling must not depend on it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.SettleTimeout)
	defer cancel()
	switch commitTS, err = r.rollBack(ctx, primary, startTS); {
	case err != nil:
		return 0, Errorf("%w: %w; settling it failed: %w", ErrCommitUnknown, u.cause, err)
	case commitTS == 0:
		err = u.fenced
	}
	r.settled.Add(1)
	return commitTS, err
}

// rollBack rolls the transaction back at its primary. A commitTS of 0 means that it can never
// commit: the rollback record refuses every copy of its commit still in flight. Otherwise it
// is committed. After an error the outcome is unknown.
func (r *resolver) rollBack(ctx context.Context, primary mvcc.Cell,
	startTS mvcc.Timestamp) (commitTS mvcc.Timestamp, err error) {
	var wait request.Retry
	for {
		res, err := r.router.Mutate(ctx, request.PosOf(primary),
			rollbackRequest(startTS, []mvcc.Cell{primary}, nil))
		if err != nil {
			return 0, err
		}
		switch res.Status {
		case pb.Status_STATUS_COMMITTED:
			return mvcc.Timestamp(res.CommitTs), nil
		case pb.Status_STATUS_OK, pb.Status_STATUS_ROLLED_BACK:
			return 0, nil
		case pb.Status_STATUS_LOCKED: // the one-phase commit is still in flight
			err = Errorf("%w: the commit is still under way", ErrUnavailable)
			if err = wait.Again(ctx, r.cfg.OperationTimeout, request.AskLater, err); err != nil {
				return 0, err
			}
		default: // below the safepoint nothing can be inferred
			return 0, Errorf("unexpected status of a rollback: %v", res.Status)
		}
	}
}
