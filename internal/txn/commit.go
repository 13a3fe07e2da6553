package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/counters"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// Commit commits the transaction and ends it. It returns the commit timestamp, or the start
// timestamp if there was nothing to write. ErrTxDone means that it had ended before, perhaps by
// a Commit. After ErrCommitUnknown the outcome is unknown. After any other error the transaction
// did not commit; unless it is ErrConflict or ErrLocked its text says so.
func (t *Txn) Commit(ctx context.Context) (mvcc.Timestamp, error) {
	if !t.end() {
		return 0, ErrTxDone
	}
	err := t.failed
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = t.bindTables(ctx)
	}
	if err == nil {
		err = t.setTimers(ctx)
	}
	if err != nil {
		t.record(counters.Undecided, outcomeOf(err))
		return 0, notCommitted(err)
	}
	ts, kind, err := t.commit(ctx)
	t.record(kind, outcomeOf(err))
	if err != nil {
		return 0, notCommitted(err)
	}
	t.countWrites()
	t.done()
	return ts, nil
}

// commit chooses the protocol: nothing to write, notifications only, one phase or two.
func (t *Txn) commit(ctx context.Context) (mvcc.Timestamp, counters.Kind, error) {
	if len(t.writes) > 0 {
		t.sortWrites()
	}
	if len(t.notifies) > 1 {
		slices.SortFunc(t.notifies, mvcc.Cell.Compare)
		t.notifies = slices.Compact(t.notifies)
	}
	switch err := t.overtaken(); {
	case err != nil:
		return 0, counters.Undecided, err
	case len(t.writes) == 0 && len(t.notifies) == 0:
		ts, err := t.start(ctx)
		return ts, counters.ReadOnly, err
	case len(t.writes) == 0:
		ts, err := t.commitNotifies(ctx)
		return ts, counters.NotifyOnly, err
	}
	// onePhase sends nothing unless all cells fit into one message to one tablet.
	if !t.c.cfg.TwoPhaseOnly && len(t.validations) == 0 {
		span := t.span.Child(spanCommit)
		ts, err := (&onePhase{t: t, writes: t.writes, notifies: t.notifies}).commit(ctx)
		// After errManyTablets, which means that nothing was sent, the span is not ended and so not
		// exported.
		if !errors.Is(err, errManyTablets) {
			endSpan(span, err)
			return ts, counters.OnePhase, err
		}
	}
	run := &twoPhase{t: t, c: t.c}
	ts, err := run.commit(ctx)
	if run.spare && surelyRefused(err) {
		again := &twoPhase{t: t, c: t.c}
		if err = again.restart(ctx, t); err == nil {
			ts, err = again.commit(ctx)
		}
	}
	return ts, counters.TwoPhase, err
}

// sortWrites sorts the buffer into writes, then locks, and moves the validations out. A
// transaction without writes has no primary: if it notifies, its locks become validations.
// Otherwise locks and validations are dropped: the transaction takes effect at its start
// timestamp, at which all its reads hold.
//
// Sorting makes the cells of one tablet adjacent. Any write can be the primary: the first one
// is, after chooseLast has moved a tablet's writes to the front.
func (t *Txn) sortWrites() {
	slices.SortFunc(t.writes, func(a, b bufferedWrite) int {
		return cmp.Or(cmp.Compare(max(a.kind, mvcc.KindDelete), max(b.kind, mvcc.KindDelete)),
			a.cell.Compare(b.cell))
	})
	written := len(t.writes)
	for written > 0 && !t.writes[written-1].writes() {
		written--
	}
	kept := written
	for written > 0 && kept < len(t.writes) && t.writes[kept].kind == mvcc.KindLock {
		kept++
	}
	if written > 0 || len(t.notifies) > 0 {
		for _, w := range t.writes[kept:] {
			t.validations = append(t.validations, w.cell)
		}
	}
	t.writes, t.written = t.writes[:kept], written
}

// commitNotifies commits a transaction that only has weak notifications. It has no primary: it
// obtains a new timestamp, above that of every run that may have missed the change behind the
// notification, validates at it, and writes the entries (design section 4, "A notification is
// written with its write record"). Entries are idempotent, and a superfluous one only causes
// another run, so nothing is ever undone.
func (t *Txn) commitNotifies(ctx context.Context) (mvcc.Timestamp, error) {
	// The entries get a new timestamp, not the start timestamp: a run that began after the start
	// timestamp, but before the change behind this notification was committed, would clear the
	// entry without having seen the change.
	if len(t.validations) > 0 {
		if _, err := t.start(ctx); err != nil { // without a read there is no start timestamp yet
			return 0, err
		}
	}
	ts, err := t.timestamp(ctx)
	if err == nil {
		err = t.validate(ctx, ts)
	}
	if err != nil {
		return 0, err
	}
	err = t.c.router.Notify(ctx, &pb.NotifyRequest{Ts: uint64(ts), Origin: uint64(t.origin)},
		t.notifies, t.span.Sent())
	if err == nil {
		return ts, nil
	}
	// A permanent refusal would recur in every run; superfluous entries in other tablets are
	// harmless.
	if request.Permanent(err) || errors.Is(err, ErrNotifyOnly) {
		return 0, err
	}
	return 0, Errorf("%w: some notifications may have been written: %w", ErrCommitUnknown, err)
}

// refusal returns why a tablet refused a commit's writes, or nil if it did not.
func refusal(res *pb.MutationResult) error {
	switch res.GetStatus() {
	case pb.Status_STATUS_CONFLICT:
		return &ConflictError{
			Cell: wire.Cell(res.ConflictAt), CommitTS: mvcc.Timestamp(res.CommitTs),
		}
	case pb.Status_STATUS_ROLLED_BACK:
		return errRolledBack
	case pb.Status_STATUS_TOO_OLD:
		return ErrSnapshotTooOld
	case pb.Status_STATUS_NOTIFY_ONLY:
		return request.NotifyOnly(res)
	}
	return nil
}

var errRolledBack = Errorf("%w: another client has rolled this transaction back", ErrConflict)

// ConflictError names the cell that another transaction changed first. It wraps
// ErrConflict.
type ConflictError struct {
	Cell     mvcc.Cell
	CommitTS mvcc.Timestamp // of the other transaction
}

// Error returns a text with the cell and the other transaction's commit timestamp.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: row %q column %q changed at %d", ErrConflict, e.Cell.Row, e.Cell.Column,
		e.CommitTS)
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// errFenced means that the reply to a commit was lost, or unexpected, and the transaction has
// since been rolled back. It did not commit, so it counts as a conflict.
var errFenced = Errorf("%w: the reply to the commit was lost or unexpected, and this transaction has been rolled back",
	ErrConflict)

// rollbackRequest rolls startTS back at the cells and intents of one tablet.
func rollbackRequest(startTS mvcc.Timestamp, cells, intents []mvcc.Cell) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: &pb.RollbackRequest{
		StartTs: uint64(startTS), Cells: wire.CellsPB(cells), Intents: wire.CellsPB(intents),
	}}}
}
