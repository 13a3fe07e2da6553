package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// twoPhase is one two-phase commit (§2.2, Figure 6). The first of the transaction's writes is
// the primary.
type twoPhase struct {
	t *Txn
	c *Client
	heartbeat
	held atomic.Bool // some prewrite may have left locks
	// last is the primary's part of the transaction if that is not prewritten, but commits
	// in one phase once all else is (docs/adr/0046). Without writes: there is none.
	last    onePhase
	intents []mvcc.Cell // the notifications that are not in last
}

// commit runs the two phases. When it returns, the primary is decided, or its state is
// unknown; the rest continues in the background. The steps, and what a crash of this
// process after each of them leads to once another transaction meets the locks:
//
//	some cells are prewritten    the primary's lock expires, or never came: rolled back
//	all are prewritten           likewise: nobody but this process can commit it
//	the primary is committed     committed: the secondaries are rolled forward
//
// commit is what users wait for; its latency is one prewrite, one timestamp and one commit.
func (p *twoPhase) commit(ctx context.Context) (mvcc.Timestamp, error) {
	if err := p.chooseLast(ctx); err != nil {
		return 0, err
	}
	p.heartbeat.primary, p.heartbeat.startTS = p.t.writes[0].cell, p.t.at
	p.c.beats.add(&p.heartbeat)
	defer p.c.beats.remove(&p.heartbeat)
	began := time.Now()
	if err := p.prewriteAll(ctx, p.t.writes[len(p.last.writes):], p.intents); err != nil {
		p.abandon(ctx)
		return 0, err
	}
	if part := p.last; len(part.writes) > 0 {
		// Only the primary's lock can be renewed: a commit that is as slow as that gets one.
		if time.Since(began) < p.c.beats.every {
			ts, err := p.commitLast(ctx)
			if !errors.Is(err, errManyTablets) {
				return ts, err
			}
		}
		p.last, p.intents = onePhase{}, p.t.notifies
		if err := p.prewriteAll(ctx, part.writes, part.notifies); err != nil {
			p.abandon(ctx)
			return 0, err
		}
	}
	return p.commitLocked(ctx)
}

// chooseLast chooses the tablet whose part commits in one phase: that with the most writes,
// of those whose part goes into one message. It moves these writes to the front, so that the
// primary is one of them.
//
// Locks without a write are prewritten, since they are sorted behind the writes, and what
// validates has to know its commit timestamp before it commits.
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
	err := cut(ctx, p.c.router, t.writes, func(w bufferedWrite) (mvcc.Cell, int) {
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
	in, out := split(best.d, t.notifies, p.c.router.batchBytes()-best.weight)
	p.last, p.intents = onePhase{t, t.writes[:best.n], in}, out
	return nil
}

// commitLast decides the transaction, all else of which is prewritten, by committing its last
// tablet's part in one phase. The error is errManyTablets if nothing was sent.
//
// The proof of order (§2.3) holds: the locks elsewhere are durable before the message is
// sent, and the tablet asks for the commit timestamp only once it has reserved its cells.
// Whoever meets one of the locks finds nothing at the primary, waits for as long as the lock
// has not expired, and then leaves a rollback record there, which refuses this commit.
func (p *twoPhase) commitLast(ctx context.Context) (mvcc.Timestamp, error) {
	began, span := time.Now(), p.t.span.Child(spanCommit)
	commitTS, err := mvcc.Timestamp(0), ctx.Err()
	if err == nil {
		commitTS, err = p.last.commit(ctx)
	}
	if errors.Is(err, errManyTablets) { // the span is dropped
		return 0, err
	}
	endSpan(span, err)
	p.c.stats.latencies.steps[StepCommit].Since(began)
	if err != nil {
		if !errors.Is(err, ErrCommitUnknown) {
			p.abandon(ctx)
		}
		return 0, err
	}
	cells, _, _ := p.cells()
	p.finishLater(committed{
		commitTS: commitTS, restCells: cells[len(p.last.writes):], restIntents: p.intents,
	}, nil)
	return commitTS, nil
}

// commitLocked takes the commit timestamp and decides the transaction, all of which is
// prewritten, by committing the primary.
func (p *twoPhase) commitLocked(ctx context.Context) (mvcc.Timestamp, error) {
	// Every lock is durable: only now may the commit timestamp be asked for (§2.3, invariant 2).
	span := p.t.span.Child(spanOracle)
	commitTS, err := p.c.oracle.get(ctx)
	endSpan(span, err)
	if err == nil {
		err = p.validate(ctx, commitTS)
	}
	if err = cmp.Or(err, ctx.Err(), p.t.overtaken()); err != nil {
		p.abandon(ctx)
		return 0, err
	}
	cells, locked, intents := p.cells()
	began, span := time.Now(), p.t.span.Child(spanCommit)
	done, err := p.commitPrimary(ctx, commitTS, cells, intents)
	endSpan(span, err)
	p.c.stats.latencies.steps[StepCommit].Since(began)
	if err != nil {
		// Unknown means that settling failed too: it is left to those who meet the locks.
		if !errors.Is(err, ErrCommitUnknown) {
			p.abandon(ctx)
		}
		return 0, err
	}
	p.finishLater(done, locked)
	return done.commitTS, nil
}

// finishLater has what is left committed in the background.
func (p *twoPhase) finishLater(done committed, locked []mvcc.Cell) {
	if len(done.restCells)+len(done.restIntents)+len(locked) == 0 {
		return
	}
	rest := make(chan struct{})
	p.t.rest = rest
	p.c.work.run(func(ctx context.Context) {
		defer close(rest)
		p.finish(ctx, done, locked)
	})
}

// cells returns all that has to be committed or rolled back: what is written, of which the
// first is the primary, what is locked without a write, and the intents.
func (p *twoPhase) cells() (written, locked, intents []mvcc.Cell) {
	cells := make([]mvcc.Cell, len(p.t.writes))
	for i := range p.t.writes {
		cells[i] = p.t.writes[i].cell
	}
	n := p.t.written
	return cells[:n:n], cells[n:], p.t.notifies
}

// committed is what is left to do after the primary's commit.
type committed struct {
	commitTS               mvcc.Timestamp
	restCells, restIntents []mvcc.Cell
}

// commitPrimary makes the decision (Figure 6 line 58), with one message for the primary
// and the cells that share its tablet.
func (p *twoPhase) commitPrimary(ctx context.Context, commitTS mvcc.Timestamp, cells,
	intents []mvcc.Cell) (committed, error) {
	var wait patience
	for {
		d, err := p.c.router.locate(ctx, posOf(p.primary))
		if err != nil {
			return committed{}, err
		}
		// Cells in the primary's tablet are committed by the same message, atomically
		// with it. The primary is the first of the cells, so the run begins with it.
		n, weight := firstRun(p.c.router, d, cells, p.c.router.decision)
		in, out := split(d, intents, p.c.router.batchBytes()-weight)
		done := committed{commitTS: commitTS, restCells: cells[n:], restIntents: out}
		resp, v, err := p.c.router.try(ctx, d, p.commitRequest(commitTS, cells[:n], in))
		switch v {
		case answered:
			next, err := p.judgePrimary(ctx, resp.GetMutation(), &done)
			if err != nil || next == 0 {
				return done, err
			}
			if err := p.validate(ctx, next); err != nil {
				return committed{}, err
			}
			commitTS = next
			continue
		case refused:
			return committed{}, err
		case unknown:
			return p.settlePrimary(ctx, err)
		}
		// Surely not done, as every attempt before it, so sending it again is safe.
		if err := wait.again(ctx, &p.c.cfg, v, err); err != nil {
			return committed{}, err
		}
	}
}

// judgePrimary judges the answer to the primary's commit. next is not zero if it has to
// be sent with a later timestamp.
func (p *twoPhase) judgePrimary(ctx context.Context, res *pb.MutationResult,
	done *committed) (next mvcc.Timestamp, err error) {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED:
		p.t.sawLeft(res)
		if res.GetCommitTs() != 0 {
			done.commitTS = mvcc.Timestamp(res.CommitTs)
		}
		return 0, nil
	case pb.Status_STATUS_ROLLED_BACK:
		return 0, errRolledBack
	case pb.Status_STATUS_COMMIT_TS_TOO_LOW: // surely not done
		return p.c.oracle.get(ctx)
	// "not found" among them: the lock is gone, and the record that says why has to be
	// asked for
	default:
		*done, err = p.settlePrimary(ctx, fmt.Errorf("the primary's tablet answered %v", res))
		return 0, err
	}
}

// settlePrimary settles a lost reply. If the primary turns out committed, everything else
// is committed in the background once more: how much of it was in the lost message's
// tablet is not known.
func (p *twoPhase) settlePrimary(ctx context.Context, cause error) (committed, error) {
	ts, err := p.c.resolver.settle(ctx, p.primary, p.startTS, cause)
	if err != nil {
		return committed{}, err
	}
	if ts == 0 {
		return committed{}, errFenced
	}
	cells, _, intents := p.cells()
	return committed{commitTS: ts, restCells: cells[1:], restIntents: intents}, nil
}

// finish commits the secondaries after the caller was answered. Locks that it fails to
// commit are left for resolution.
func (p *twoPhase) finish(ctx context.Context, done committed, locked []mvcc.Cell) {
	err := p.commitRest(ctx, done.commitTS, done.restCells, done.restIntents)
	// A lock may have been resolved, and locked by others since: then nothing is left to do.
	if len(locked) > 0 {
		err = cmp.Or(err, p.c.router.eachTablet(ctx, locked, nil,
			resolveRequest(p.startTS, done.commitTS), nil))
	}
	if err != nil {
		p.c.stats.secondaries.Add(1)
		p.c.cfg.Logger.Warn("secondaries left to be resolved", "start_ts", p.startTS, "commit_ts",
			done.commitTS, "error", err)
	}
}

// commitRest commits secondaries and intents of a transaction whose primary is committed.
func (p *twoPhase) commitRest(ctx context.Context, commitTS mvcc.Timestamp, cells,
	intents []mvcc.Cell) error {
	return p.c.router.eachTablet(ctx, cells, intents,
		func(cells, intents []mvcc.Cell) *pb.TabletRequest {
			return p.commitRequest(commitTS, cells, intents)
		}, func(res *pb.MutationResult) error {
			if res.Status != pb.Status_STATUS_OK && res.Status != pb.Status_STATUS_COMMITTED {
				return fmt.Errorf("percolator: a secondary's commit was answered %v", res.Status)
			}
			p.t.sawLeft(res)
			return nil
		})
}

// abandon rolls back whatever was prewritten: the primary first, here if ctx still allows
// it, then the rest in the background. What fails is left to expire.
func (p *twoPhase) abandon(ctx context.Context) {
	if !p.held.Load() {
		return
	}
	p.c.stats.rolledBack.Add(1)
	written, locked, _ := p.cells()
	rest, intents := slices.Concat(written[max(1, len(p.last.writes)):], locked), p.intents
	primary := func(ctx context.Context) error {
		_, err := p.c.router.mutate(ctx, posOf(p.primary),
			rollbackRequest(p.startTS, []mvcc.Cell{p.primary}, nil))
		return err
	}
	// The caller waits only for the primary's rollback, and not for long. After it, the
	// next run resolves the locks of this one at once instead of taking them for alive.
	here, cancel := context.WithTimeout(ctx, p.c.cfg.SettleTimeout)
	defer cancel()
	decided := here.Err() == nil && primary(here) == nil
	p.c.work.run(func(ctx context.Context) {
		// No secondary is rolled back before the primary's decision is known (invariant
		// 1).
		if !decided {
			if err := primary(ctx); err != nil {
				return
			}
		}
		_ = p.c.router.eachTablet(ctx, rest, intents,
			func(cells, intents []mvcc.Cell) *pb.TabletRequest {
				return rollbackRequest(p.startTS, cells, intents)
			}, nil)
	})
}

// split parts intents into those that d holds, as far as there is room for them, and the
// others.
func split(d *pb.TabletDescriptor, intents []mvcc.Cell, room int) (in, out []mvcc.Cell) {
	for _, c := range intents {
		w := c.IntentDecisionWeight()
		if w <= room && len(in) < maxBatchCells/4 && wire.Holds(d, posOf(c)) {
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
