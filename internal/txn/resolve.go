package txn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// maxDecisions is how many decisions are remembered.
	maxDecisions = 4096
	// maxResolveRounds is how often a commit resolves locks in its way before it gives up
	// and is run again.
	maxResolveRounds = 8
	// MaxMet is how many cells a client names, and its node looks at, in a question about a
	// transaction whose locks the client may not be allowed to end.
	MaxMet = 16
)

// resolver resolves locks in the way of reads and commits (invariants 3, 6 and 7 of
// design section 4). All that meet locks of one transaction share one flight: a wait, a
// status check at the primary, and the resolution of the locks met.
//
// A dead transaction may have left thousands of locks, and one lock may block hundreds of
// readers. Without sharing, each of them would ask the same primary, just when its tablet
// is busiest.
type resolver struct {
	cfg    *Config
	router *router
	oracle *oracle
	work   *background
	worker mvcc.Worker // this process

	met, checked, rolledForward, rolledBack, settled atomic.Uint64 // counters

	mu      sync.Mutex
	flights map[flightKey]*flight
	// start_ts to commit_ts, 0: rolled back. It is bounded.
	decided map[mvcc.Timestamp]mvcc.Timestamp
}

// flightKey is the blocking transaction, and whether its flight waits first. Callers that
// must not wait share another flight.
type flightKey struct {
	startTS mvcc.Timestamp
	wait    bool
}

// flight is one round of work on one blocking transaction. met and waiters are guarded by
// the resolver's mu.
type flight struct {
	key     flightKey
	met     []mvcc.LockInfo
	taken   bool // met is being resolved: who comes now starts another flight
	waiters int
	cancel  context.CancelFunc
	done    chan struct{}
	live    bool  // set before done is closed
	err     error // likewise
}

func newResolver(cfg *Config, router *router, oracle *oracle, work *background,
	worker mvcc.Worker) *resolver {
	return &resolver{
		cfg: cfg, router: router, oracle: oracle, work: work, worker: worker,
		flights: make(map[flightKey]*flight), decided: make(map[mvcc.Timestamp]mvcc.Timestamp),
	}
}

// resolve does one round for each of the locks' transactions: those that are decided,
// expired or of a dead worker are resolved; live reports whether one of the others
// remains. A caller that may wait asks again with a higher round, and the flight then
// begins with a longer wait. One that must not (invariant 3 of this package) gets its
// answer at once.
func (r *resolver) resolve(ctx context.Context, locks []mvcc.LockInfo, round int,
	wait bool) (live bool, err error) {
	r.met.Add(uint64(len(locks)))
	var joined []*flight
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
			err = Errorf("%w: %w", ctx.Err(), ErrLocked)
		}
	}
	r.leave(joined)
	return live, err
}

// join adds the lock to its transaction's flight, which it starts if there is none. The
// caller holds mu.
func (r *resolver) join(l mvcc.LockInfo, round int, wait bool) *flight {
	key := flightKey{l.Lock.StartTS, wait}
	f := r.flights[key]
	if f != nil && !f.taken {
		for _, m := range f.met {
			if m.Cell == l.Cell && m.Intent == l.Intent {
				return f
			}
		}
		f.met = append(f.met, l)
		return f
	}
	// The flight runs under the client's context: the first caller's may end long before
	// the others'.
	f = &flight{key: key, met: []mvcc.LockInfo{l}, done: make(chan struct{})}
	var ctx context.Context
	ctx, f.cancel = context.WithTimeout(r.work.ctx, r.cfg.OperationTimeout)
	r.flights[key] = f
	done := r.work.begin()
	go func() {
		defer done()
		r.fly(ctx, f, l, round)
	}()
	return f
}

// leave ends flights that nobody waits for any more.
func (r *resolver) leave(joined []*flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range joined {
		if f.waiters--; f.waiters == 0 {
			f.cancel()
			r.land(f)
		}
	}
}

// land keeps others from joining the flight. The caller holds mu.
func (r *resolver) land(f *flight) {
	f.taken = true
	if r.flights[f.key] == f {
		delete(r.flights, f.key)
	}
}

// fly does the flight's one round and tells those who wait for it.
func (r *resolver) fly(ctx context.Context, f *flight, l mvcc.LockInfo, round int) {
	f.live, f.err = r.round(ctx, f, l, round)
	r.mu.Lock()
	r.land(f)
	r.mu.Unlock()
	f.cancel()
	close(f.done)
}

// round waits, checks the primary and resolves, as far as each is needed.
func (r *resolver) round(ctx context.Context, f *flight, l mvcc.LockInfo,
	round int) (live bool, err error) {
	commitTS, known := r.Decided(l.Lock.StartTS)
	if !known {
		dead := l.Lock.Worker != r.worker && r.router.transport.WorkerDead(ctx, l.Lock.Worker)
		// Most locks that are met belong to commits that end within a millisecond or so.
		// An expired lock, or one of a dead worker, is not worth waiting for, unless it
		// lives all the same: heartbeats move the expiry of the primary only.
		b := backoff(round)
		first := f.key.wait && !dead && r.oracle.estimate() <= l.Lock.Expiry
		if first {
			if err := Sleep(ctx, b.next()); err != nil {
				return true, err
			}
		}
		commitTS, live, err = r.ask(ctx, l, dead, r.locksMet(f))
		if err == nil && live && f.key.wait && !first {
			err = Sleep(ctx, b.next())
		}
		if err != nil || live {
			return live, err
		}
		r.remember(l.Lock.StartTS, commitTS)
	}
	// Land first: a lock that joined later would be reported resolved without having
	// been.
	r.mu.Lock()
	f.taken = true
	met := f.met
	r.mu.Unlock()
	err = r.apply(ctx, l.Lock.StartTS, commitTS, met)
	if f.key.wait && errors.Is(err, ErrPermission) {
		// This client may read only. It waits for the lock's owner or others that meet it, and
		// asks again: its node ends the locks once they have expired.
		r.mu.Lock()
		delete(r.decided, l.Lock.StartTS)
		r.mu.Unlock()
		b := backoff(round)
		return true, Sleep(ctx, b.next())
	}
	return false, err
}

// locksMet returns the cells of some of the flight's locks, for the node to end them
// (CheckTxnStatusRequest.met). It does so for locks alone: nobody waits for an intent.
func (r *resolver) locksMet(f *flight) (met []*pb.Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range f.met {
		if !m.Intent && len(met) < MaxMet {
			met = append(met, wire.CellPB(m.Cell))
		}
	}
	return met
}

// ask checks the transaction's status at its primary, by the oracle's time. A commitTS of
// 0 means rolled back.
func (r *resolver) ask(ctx context.Context, l mvcc.LockInfo, dead bool,
	met []*pb.Cell) (commitTS mvcc.Timestamp, live bool, err error) {
	// Whether a lock has expired is decided by the oracle's time, never by this machine's
	// (invariant 6 of design section 4).
	now, err := r.oracle.get(ctx)
	if err != nil {
		return 0, false, err
	}
	r.checked.Add(1)
	check := &pb.CheckTxnStatusRequest{
		Primary: wire.CellPB(l.Lock.Primary), StartTs: uint64(l.Lock.StartTS), Now: uint64(now),
		MetExpiry: uint64(l.Lock.Expiry), WorkerDead: dead, Met: met,
	}
	res, err := r.router.mutate(ctx, posOf(l.Lock.Primary),
		&pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: check}})
	if err != nil {
		return 0, false, err
	}
	switch res.Status {
	case pb.Status_STATUS_COMMITTED:
		return mvcc.Timestamp(res.CommitTs), false, nil
	case pb.Status_STATUS_ROLLED_BACK:
		return 0, false, nil
	case pb.Status_STATUS_LIVE, pb.Status_STATUS_LOCKED, pb.Status_STATUS_UNKNOWN:
		// unknown: below the safepoint nothing may be inferred, the tablet's own
		// collection decides
		return 0, true, nil
	default:
		return 0, false, Errorf("%w: status check answered %v", ErrUnavailable, res.Status)
	}
}

// apply resolves the locks met by the primary's decision.
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
	return r.router.eachTablet(ctx, cells, intents, resolveRequest(startTS, commitTS), applied)
}

// errContradicted means that a cell was committed although its primary is rolled back, or
// newer than the commit timestamp that its primary has.
var errContradicted = NewError("a cell contradicts the decision of its primary")

// applied returns an error unless the answer to a message that applies a decision, a Rollback or
// a ResolveLock, is OK. After any other answer locks remain.
func applied(res *pb.MutationResult) error {
	switch res.Status {
	case pb.Status_STATUS_OK:
		return nil
	case pb.Status_STATUS_COMMITTED, pb.Status_STATUS_COMMIT_TS_TOO_LOW:
		return Errorf("%w: answered %v", errContradicted, res)
	}
	return Errorf("%w: a decision was answered %v", ErrUnavailable, res.Status)
}

// resolveRequest builds the messages that apply a decision.
func resolveRequest(startTS, commitTS mvcc.Timestamp) func(cells, intents []mvcc.Cell) *pb.TabletRequest {
	return func(cells, intents []mvcc.Cell) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{ResolveLock: &pb.ResolveLockRequest{
			StartTs: uint64(startTS), CommitTs: uint64(commitTS), Cells: wire.CellsPB(cells),
			Intents: wire.CellsPB(intents),
		}}}
	}
}

// Decided returns what this client knows of a transaction whose locks it has resolved:
// its commit timestamp, 0 if it was rolled back. Decisions never change, but the cache is
// bounded, so known is false for forgotten ones too.
func (r *resolver) Decided(startTS mvcc.Timestamp) (commitTS mvcc.Timestamp, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	commitTS, known = r.decided[startTS]
	return commitTS, known
}

// remember caches a decision for callers that meet other locks of the transaction.
func (r *resolver) remember(startTS, commitTS mvcc.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.decided) >= maxDecisions {
		clear(r.decided)
	}
	r.decided[startTS] = commitTS
}

// ResolveLock does one round of resolution for a lock or intent, without waiting first.
// It is for scanners and tools. resolved is false if the transaction is alive.
func (r *resolver) ResolveLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error) {
	live, err := r.resolve(ctx, []mvcc.LockInfo{l}, 0, false)
	return err == nil && !live, err
}

// ResolveAt does one round of resolution for the transaction's lock on the cell, if there is
// one. live reports whether the transaction goes on. Nodes call it for clients that have met
// the lock but may not end it: it reads the lock anew, so that nothing depends on what a
// client says of it.
func (r *resolver) ResolveAt(ctx context.Context, cell mvcc.Cell,
	startTS mvcc.Timestamp) (live bool, err error) {
	l, there, err := r.router.lockAt(ctx, cell)
	if err != nil || !there || l.Lock.StartTS != startTS {
		return false, err
	}
	resolved, err := r.ResolveLock(ctx, l)
	return err == nil && !resolved, err
}

// ForceLock is like ResolveLock but takes the lock's transaction for dead. If it is
// undecided, it is rolled back at its primary, and its commit will be refused (invariants
// 3 and 7 of design section 4: being wrong about a death costs an abort, never
// correctness). resolved is false while a one-phase commit of it is in flight, or if its
// outcome can't be known any more.
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

// clearAway resolves the locks that a commit has met, without waiting: the caller may
// hold locks (invariant 3). The error wraps ErrLocked if one of them is alive.
func (r *resolver) clearAway(ctx context.Context, locks []mvcc.LockInfo, rounds int) error {
	if len(locks) == 0 || rounds >= maxResolveRounds {
		return ErrLocked
	}
	// If the lock's owner has just committed its primary, rolling the lock forward here
	// saves a run of the whole transaction.
	live, err := r.resolve(ctx, locks, rounds, false)
	if err != nil {
		return Errorf("%w: %w", ErrLocked, err)
	}
	if live {
		return Errorf("%w: row %q", ErrLocked, locks[0].Cell.Row)
	}
	return nil
}

// undecided is the error of a commit that ends although a copy of the message that decides it
// may still be under way. It is settled before the caller hears of it.
type undecided struct {
	cause  error // why the outcome is unknown if it cannot be settled
	fenced error // the commit's error if it is rolled back
}

// Error is the text of the cause.
func (u *undecided) Error() string { return u.cause.Error() }

// lost returns the undecided of a message that was not answered.
func lost(err error) error { return &undecided{cause: err, fenced: errFenced} }

// givenUp returns the undecided of a commit that ends with err although its message was
// answered. If it cannot be settled, the error must not pass for err, which may say that
// nothing was committed.
func givenUp(err error) error {
	return &undecided{cause: errors.New(err.Error()), fenced: err}
}

// settle decides a commit that is undecided, by a Rollback at the primary. Either that
// answers with the commit timestamp, or the transaction can never commit any more and the
// error is u.fenced (invariant 8 of design section 4). It is bounded by SettleTimeout, not
// by the caller's context; the error wraps ErrCommitUnknown if that was not enough.
func (r *resolver) settle(ctx context.Context, primary mvcc.Cell, startTS mvcc.Timestamp,
	u *undecided) (commitTS mvcc.Timestamp, err error) {
	// The end of the caller's context is often why the commit is undecided, so settling must
	// not depend on it.
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

// rollBack rolls the transaction back at its primary. A commitTS of 0 means that it can
// never commit any more: the rollback record refuses every copy of its commit that is still
// under way. Otherwise it is committed. After an error nothing is known.
func (r *resolver) rollBack(ctx context.Context, primary mvcc.Cell,
	startTS mvcc.Timestamp) (commitTS mvcc.Timestamp, err error) {
	var wait retryPolicy
	for {
		res, err := r.router.mutate(ctx, posOf(primary),
			rollbackRequest(startTS, []mvcc.Cell{primary}, nil))
		if err != nil {
			return 0, err
		}
		switch res.Status {
		case pb.Status_STATUS_COMMITTED:
			return mvcc.Timestamp(res.CommitTs), nil
		case pb.Status_STATUS_OK, pb.Status_STATUS_ROLLED_BACK:
			return 0, nil
		case pb.Status_STATUS_LOCKED: // the one-phase commit itself is still in flight
			err = Errorf("%w: the commit is still under way", ErrUnavailable)
			if err = wait.again(ctx, r.cfg, askLater, err); err != nil {
				return 0, err
			}
		default: // below the safepoint nothing may be inferred
			return 0, Errorf("rollback answered %v", res.Status)
		}
	}
}
