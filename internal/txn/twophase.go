package txn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/counters"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// twoPhase is one two-phase commit (§2.2, Figure 6). The transaction's first write is the
// primary.
type twoPhase struct {
	t *Txn
	c *Client
	heartbeat
	commitStart
	held  atomic.Bool  // a prewrite may have left locks
	async *asyncCommit // nil unless all cells are prewritten for an asynchronous commit
	// last is the primary's part of the transaction if it commits in one phase after all else
	// is prewritten (docs/adr/0046). It is empty if the primary is prewritten too.
	last    onePhase
	intents []mvcc.Cell // the notifications not in last
	// A heartbeat may prewrite last while the rest is being prewritten (lockLast). turn, of
	// capacity 1, is held by that heartbeat, or permanently by commit once prewriting the rest
	// has ended. It guards locking (the prewrite of last has begun) and locked (it is
	// complete).
	turn            chan struct{}
	locking, locked bool
}

// commit runs the two phases, or commitAsync if asyncFits. When it returns a timestamp, the
// transaction is committed, and its other cells follow in the background. The steps of the two
// phases, and the outcome after a crash of this process at each of them, once another transaction
// encounters the locks:
//
//	some cells are prewritten    the primary's lock expires, or never came: rolled back
//	all are prewritten           likewise: nobody but this process can commit it
//	the primary is committed     committed: the secondaries are rolled forward
func (p *twoPhase) commit(ctx context.Context) (mvcc.Timestamp, error) {
	if p.asyncFits() {
		return p.commitAsync(ctx)
	}
	if err := p.chooseLast(ctx); err != nil {
		return 0, err
	}
	if err := p.begin(ctx); err != nil {
		return 0, err
	}
	p.heartbeat.primary, p.heartbeat.startTS = p.t.writes[0].cell, p.at
	part := p.last
	if len(part.writes) > 0 {
		p.turn, p.heartbeat.lock = make(chan struct{}, 1), p.lockLast
	}
	p.c.beats.add(&p.heartbeat)
	defer p.c.beats.remove(&p.heartbeat)
	err := p.prewriteAll(ctx, p.t.writes[len(part.writes):], p.intents)
	if len(part.writes) > 0 {
		p.turn <- struct{}{}
		if err == nil && !p.locking {
			ts, err := p.commitLast(ctx)
			if !errors.Is(err, errManyTablets) {
				return ts, err
			}
			p.locking = true
		}
		if p.locking { // the last part commits in two phases too
			p.last, p.intents = onePhase{}, p.t.notifies
		}
		if err == nil && !p.locked {
			err = p.prewriteAll(ctx, part.writes, part.notifies)
		}
	}
	if err != nil {
		return p.abandon(ctx, err)
	}
	return p.commitLocked(ctx)
}

// begin sets the start timestamp. Without a last part it is never a spare one: only the last
// part's commit returns a spare one for the next transaction.
func (p *twoPhase) begin(ctx context.Context) (err error) {
	if len(p.last.writes) == 0 {
		p.at, err = p.t.start(ctx)
		return err
	}
	if err = p.commitStart.begin(ctx, p.t); err == nil {
		p.last.commitStart = p.commitStart
	}
	return err
}

// lockLast prewrites the last tablet's part like the others, unless commit holds the turn;
// commit waits for a lockLast that has begun. Only the primary's lock can be renewed, so a slow
// commit needs one: without it, a reader that encountered another of its expired locks would roll
// back the commit and each of its retries (design section 4, "A missing primary is not a
// rollback").
func (p *twoPhase) lockLast(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	default:
		return nil
	}
	if p.locked {
		return nil
	}
	p.locking = true
	err := p.prewriteAll(ctx, p.last.writes, p.last.notifies)
	p.locked = err == nil
	return err
}

// chooseLast chooses the tablet whose part commits in one phase: the one with the most writes,
// of those whose part fits into one message. It moves these writes to the front, so that the
// primary is one of them.
//
// A transaction with locks without a write has no last part, nor has one with validations, which
// needs its commit timestamp before it commits.
func (p *twoPhase) chooseLast(ctx context.Context) error {
	t, limits := p.t, p.c.cfg.Limits
	p.intents = t.notifies
	if p.c.cfg.TwoPhaseOnly || t.written < len(t.writes) || len(t.validations) > 0 {
		return nil
	}
	type run struct {
		d                *pb.TabletDescriptor
		first, n, weight int
	}
	var runs []run
	seen := 0
	err := request.Cut(ctx, p.c.router, t.writes, func(w bufferedWrite) (mvcc.Cell, int) {
		return w.cell, w.cell.OnePhaseWeight(len(w.value), limits)
	}, func(d *pb.TabletDescriptor, writes []bufferedWrite, weight int) {
		runs = append(runs, run{d, seen, len(writes), weight})
		seen += len(writes)
	})
	if err != nil {
		return err
	}
	var best run
	for i, r := range runs {
		several := i > 0 && runs[i-1].d.TabletId == r.d.TabletId ||
			i+1 < len(runs) && runs[i+1].d.TabletId == r.d.TabletId
		if !several && r.n > best.n {
			best = r
		}
	}
	if best.n == 0 {
		return nil
	}
	chosen := slices.Clone(t.writes[best.first : best.first+best.n])
	copy(t.writes[best.n:], t.writes[:best.first])
	copy(t.writes, chosen)
	in, out := split(best.d, t.notifies, p.c.router.BatchBytes()-best.weight)
	p.last, p.intents = onePhase{t: t, writes: t.writes[:best.n], notifies: in}, out
	return nil
}

// commitLast decides the transaction by committing its last tablet's part in one phase, after
// all else is prewritten. It returns errManyTablets, and has sent nothing, if the part does not
// fit into one message.
//
// The proof of order (§2.3) holds: the other locks are durable before the message is sent, and
// the tablet requests the commit timestamp only after it has reserved its cells. A client that
// encounters one of the locks finds nothing at the primary, waits until the lock has expired,
// and then writes a rollback record there, which makes this commit fail.
func (p *twoPhase) commitLast(ctx context.Context) (mvcc.Timestamp, error) {
	began, span := time.Now(), p.t.span.Child(spanCommit)
	commitTS, err := mvcc.Timestamp(0), ctx.Err()
	if err == nil {
		commitTS, err = p.last.send(ctx)
	}
	if errors.Is(err, errManyTablets) { // the span is not ended and so not exported
		return 0, err
	}
	endSpan(span, err)
	p.c.stats.StepSince(counters.StepCommit, began)
	if err != nil {
		return p.abandon(ctx, err)
	}
	p.finishLater(p.decidedAt(commitTS))
	return commitTS, nil
}

// commitLocked obtains the commit timestamp and decides the fully prewritten transaction by
// committing the primary.
func (p *twoPhase) commitLocked(ctx context.Context) (mvcc.Timestamp, error) {
	// Every lock is durable: only now may the commit timestamp be requested (§2.3).
	commitTS, err := p.t.timestamp(ctx)
	if err == nil {
		err = p.t.validate(ctx, commitTS)
	}
	if err = cmp.Or(err, ctx.Err(), p.t.overtaken()); err != nil {
		return p.abandon(ctx, err)
	}
	cells, locked, intents := p.cells()
	began, span := time.Now(), p.t.span.Child(spanCommit)
	done, err := p.commitPrimary(ctx, commitTS, cells, intents)
	endSpan(span, err)
	p.c.stats.StepSince(counters.StepCommit, began)
	if err != nil {
		return p.abandon(ctx, err)
	}
	done.locked = locked
	p.finishLater(done)
	return done.commitTS, nil
}

// finishLater applies the decision to the other cells in the background.
func (p *twoPhase) finishLater(done decision) {
	if len(done.cells)+len(done.intents)+len(done.locked) == 0 {
		return
	}
	ended := make(chan struct{})
	p.t.backgroundDone = ended
	p.c.work.Run(func(ctx context.Context) {
		defer close(ended)
		p.finish(ctx, done)
	})
}

// cells returns all cells to commit or roll back: the written ones, of which the first is the
// primary, those locked without a write, and the intents.
func (p *twoPhase) cells() (written, locked, intents []mvcc.Cell) {
	cells := make([]mvcc.Cell, len(p.t.writes))
	for i := range p.t.writes {
		cells[i] = p.t.writes[i].cell
	}
	n := p.t.written
	return cells[:n:n], cells[n:], p.t.notifies
}

// decision is the outcome at the primary and the cells to which it has not been applied yet.
type decision struct {
	commitTS       mvcc.Timestamp // 0: rolled back
	cells, intents []mvcc.Cell
	locked         []mvcc.Cell // cells locked without a write
}

// decidedAt returns the decision after it has been applied only to the primary and the part
// that commits with it.
func (p *twoPhase) decidedAt(commitTS mvcc.Timestamp) decision {
	written, locked, _ := p.cells()
	return decision{commitTS, written[max(1, len(p.last.writes)):], p.intents, locked}
}

// commitPrimary makes the decision (Figure 6 line 58), with one message for the primary and
// the cells in its tablet. Its error is undecided if a copy of the message may still commit.
func (p *twoPhase) commitPrimary(ctx context.Context, commitTS mvcc.Timestamp, cells,
	intents []mvcc.Cell) (decision, error) {
	var wait request.Retry
	sent, most := false, len(cells)+len(intents)
	giveUp := func(err error) (decision, error) {
		if sent {
			err = givenUp(err)
		}
		return decision{}, err
	}
	for {
		d, err := p.c.router.Locate(ctx, request.PosOf(p.primary))
		if err != nil {
			return giveUp(err)
		}
		// The same message commits the cells in the primary's tablet that fit, atomically. The
		// primary is the first cell, so the run starts with it.
		n, weight := request.FirstRun(p.c.router, d, cells[:min(most, len(cells))], p.c.router.DecisionWeight)
		in, out := split(d, intents, p.c.router.BatchBytes()-weight)
		if n+len(in) > most {
			in, out = nil, intents
		}
		done := decision{commitTS: commitTS, cells: cells[n:], intents: out}
		req := p.commitRequest(commitTS, cells[:n], in)
		req.GetCommit().Decides = true
		resp, v, err := p.c.router.Try(ctx, d, req)
		switch v {
		case request.Answered:
			sent = true
			tooLow, err := p.judgePrimary(resp.GetMutation(), &done)
			if !tooLow {
				return done, err
			}
			if commitTS, err = p.c.oracle.Get(ctx); err == nil {
				err = p.t.validate(ctx, commitTS)
			}
			if err != nil {
				return giveUp(err)
			}
			continue
		case request.Refused:
			if errors.Is(err, ErrTooLarge) && n+len(in) > 1 { // too many effects (cellPart.halves)
				most = max(1, (n+len(in))/2)
				continue
			}
			return giveUp(err) // final: only an earlier copy may have been applied
		case request.Unknown:
			return decision{}, lost(err)
		}
		// Neither this attempt nor an earlier one was applied, so it is safe to send again.
		sent = sent || !errors.Is(err, ErrNotSent)
		if err := wait.Again(ctx, p.c.cfg.OperationTimeout, v, err); err != nil {
			return giveUp(err)
		}
	}
}

// judgePrimary interprets the answer to the primary's commit. tooLow: it must be sent again
// with a later timestamp.
func (p *twoPhase) judgePrimary(res *pb.MutationResult, done *decision) (tooLow bool, err error) {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED:
		p.t.sawLeft(res)
		if res.GetCommitTs() != 0 {
			done.commitTS = mvcc.Timestamp(res.CommitTs)
		}
		return false, nil
	case pb.Status_STATUS_ROLLED_BACK:
		return false, errRolledBack
	case pb.Status_STATUS_COMMIT_TS_TOO_LOW: // not applied
		return true, nil
	// Including "not found": the lock is gone, and a status check must read the record that
	// decided it.
	default:
		return false, lost(Errorf("unexpected response to the primary's commit: %v", res))
	}
}

// finish applies the decision to the other cells. Other clients resolve the locks that it
// fails to remove.
func (p *twoPhase) finish(ctx context.Context, done decision) {
	var err error
	if done.commitTS == 0 {
		err = p.c.router.EachTablet(ctx, slices.Concat(done.cells, done.locked), done.intents,
			func(cells, intents []mvcc.Cell) *pb.TabletRequest {
				return rollbackRequest(p.startTS, cells, intents)
			}, applied)
	} else {
		err = p.commitRest(ctx, done.commitTS, done.cells, done.intents)
		// A lock may have been resolved, and its cell locked by another transaction since:
		// then nothing is left to do.
		if len(done.locked) > 0 {
			err = cmp.Or(err, p.c.router.EachTablet(ctx, done.locked, nil,
				resolveRequest(p.startTS, done.commitTS), applied))
		}
	}
	switch {
	case err == nil:
		return
	case done.commitTS != 0:
		p.c.stats.Secondaries.Add(1)
	case !errors.Is(err, errContradicted): // rolled back: the locks left behind expire
		return
	}
	p.c.cfg.Logger.Warn("secondaries left to be resolved", "start_ts", p.startTS, "commit_ts",
		done.commitTS, "error", err)
}

// commitRest commits secondaries and intents of a transaction whose primary is committed.
func (p *twoPhase) commitRest(ctx context.Context, commitTS mvcc.Timestamp, cells,
	intents []mvcc.Cell) error {
	return p.c.router.EachTablet(ctx, cells, intents,
		func(cells, intents []mvcc.Cell) *pb.TabletRequest {
			req := p.commitRequest(commitTS, cells, intents)
			req.GetCommit().Decided = p.async != nil && slices.Contains(cells, p.primary)
			return req
		}, func(res *pb.MutationResult) error {
			if res.Status != pb.Status_STATUS_OK && res.Status != pb.Status_STATUS_COMMITTED {
				return Errorf("unexpected status of a secondary's commit: %v", res.Status)
			}
			p.t.sawLeft(res)
			return nil
		})
}

// abandon ends a commit that failed with cause. It decides the primary and applies that
// decision to the rest in the background: no secondary is rolled back before the decision is
// known, and none if the transaction turns out to have committed. In that case
// it returns the commit timestamp, otherwise the commit's error.
func (p *twoPhase) abandon(ctx context.Context, cause error) (mvcc.Timestamp, error) {
	if open, ok := errors.AsType[*undecided](cause); ok {
		commitTS, err := p.c.resolver.settle(ctx, p.primary, p.startTS, open)
		// If the outcome is unknown, clients that encounter the locks resolve them.
		if !errors.Is(err, ErrCommitUnknown) {
			p.follow(commitTS)
		}
		return commitTS, err
	}
	if !p.held.Load() {
		return 0, cause
	}
	// Nothing was sent that could commit the transaction. The caller waits, for a bounded time, for
	// the primary's rollback only so that its next run can resolve the locks of this one at once.
	// If it fails, it is repeated in the background; if that fails too, the locks expire.
	here, cancel := context.WithTimeout(ctx, p.c.cfg.SettleTimeout)
	defer cancel()
	if err := here.Err(); err == nil {
		commitTS, err := p.c.resolver.rollBack(here, p.primary, p.startTS)
		if err == nil {
			p.follow(commitTS)
			if commitTS != 0 {
				cause = nil
			}
			return commitTS, cause
		}
	}
	p.c.stats.RolledBack.Add(1)
	p.c.work.Run(func(ctx context.Context) {
		if commitTS, err := p.c.resolver.rollBack(ctx, p.primary, p.startTS); err == nil {
			p.finish(ctx, p.decidedAt(commitTS))
		}
	})
	return 0, cause
}

// follow applies the primary's decision to the rest in the background.
func (p *twoPhase) follow(commitTS mvcc.Timestamp) {
	if commitTS == 0 {
		p.c.stats.RolledBack.Add(1)
	}
	p.finishLater(p.decidedAt(commitTS))
}

// split separates the intents into those of cells in d, up to a weight of room and a number of
// MaxBatchCells/4, and the others.
func split(d *pb.TabletDescriptor, intents []mvcc.Cell, room int) (in, out []mvcc.Cell) {
	for _, c := range intents {
		w := c.IntentDecisionWeight()
		if w <= room && len(in) < request.MaxBatchCells/4 && wire.Holds(d, request.PosOf(c)) {
			in, room = append(in, c), room-w
		} else {
			out = append(out, c)
		}
	}
	return in, out
}

// commitRequest commits cells and intents of one tablet.
func (p *twoPhase) commitRequest(commitTS mvcc.Timestamp,
	cells, intents []mvcc.Cell) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
		StartTs: uint64(p.startTS), CommitTs: uint64(commitTS), Cells: wire.CellsPB(cells),
		Intents: wire.CellsPB(intents), Clear: slices.ContainsFunc(cells, mvcc.Cell.IsAck),
	}}, Trace: p.t.span.Sent()}
}
