package observer

// This file takes one run from its check to its clearing, on the goroutine of its
// invocation actor. Meanwhile the dispatcher touches only phase, which decides who comes
// first: the user's function, by returning, or the dispatcher, by giving up on it.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// run is one run of an observer for one cell. It belongs to its invocation actor; phase
// is shared with the dispatcher.
type run struct {
	obs   *registeredObserver
	cell  mvcc.Cell
	known *mvcc.Notify // the notify entry that led here; nil for a hint
	// attempts is how often the dispatcher has seen runs for this change fail.
	attempts uint32
	retries  int            // runs for it in a row that came to nothing and were not counted
	rest     time.Duration  // how old the change has to be; 0: it may be new
	began    time.Time      // when the dispatcher began it
	suspect  mvcc.Timestamp // up to it changes may have been met before
	charged  recorded       // zero: it is not counted before it has failed
	client   Client
	timeout  time.Duration // of each step around the user's function
	grace    time.Duration
	base     context.Context // ends when the dispatcher gives up; carries the database
	phase    *atomic.Int32
	tx       Txn            // nil before it has begun
	origin   mvcc.Timestamp // what the changes go back to that the run is for, once checked
	traces   *tracing.Book
	span     *tracing.Span // of the user's function and the commit; nil: not traced
	// overdue is called, once, when the function has not returned a grace after its
	// deadline.
	overdue func()
	// decided tells the dispatcher that the run's batch has committed, and needs its slot no
	// more. It is called at most once.
	decided func()
	free    bool // the slot was taken back; the dispatcher's
	// batchPeers are the other runs of its batch; they share phase, overdue and decided.
	batchPeers []*run
}

// Phases of a run. The user's function returning, and the dispatcher giving up on it,
// race for phaseUser: the loser acts on nothing.
const (
	phaseCheck int32 = iota
	phaseUser
	phaseReturned
	phaseAbandoned
)

// errExited reports that the user's function ended its goroutine instead of returning.
var errExited = errors.New("observer: the function called runtime.Goexit")

// panicError is a recovered panic of the user's function.
type panicError struct {
	value any
	at    string // file and line
	stack []byte
}

// Error is the panic's value, where it was, and the stack; it is cut to 1 KiB where it is
// stored.
func (e *panicError) Error() string {
	return fmt.Sprintf("observer: panic: %v, at %s\n%s", e.value, e.at, e.stack)
}

// recovered returns the error of a panic. The deferred function that recovered it calls it.
func recovered(value any) *panicError {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers[:])])
	at, panicked := "unknown", false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panicked && !inRuntime {
			at = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if panicked && !inRuntime || !more {
			return &panicError{value: value, at: at, stack: debug.Stack()}
		}
		panicked = panicked || f.Function == "runtime.gopanic"
	}
}

// deadlineError: the function returned, if at all, after its deadline.
type deadlineError struct {
	deadline time.Duration
	cause    error
}

// Error says which deadline it was.
func (e *deadlineError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("observer: deadline of %v exceeded", e.deadline)
	}
	return fmt.Sprintf("observer: deadline of %v exceeded: %v", e.deadline, e.cause)
}

// Unwrap is the function's own error.
func (e *deadlineError) Unwrap() error { return e.cause }

// do runs to an outcome. Everything but the user's function is bounded by the step
// timeout.
func (r *run) do() outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	tx, err := r.client.Begin(ctx, r.obs.spec.Name)
	if err != nil {
		return r.retry(err)
	}
	r.tx = tx
	due, ts, out := r.check(ctx, tx)
	if due {
		due, out = r.rested(ts)
	}
	if due {
		due, out = r.charge(ctx, ts)
	}
	if !due {
		r.drop(tx)
		out.start = tx.StartTS()
		return out
	}
	// The function has a deadline of its own, which may be longer than a step's.
	cancel()
	return r.awaitRest(tx, r.execute(tx, ts))
}

// execute calls the user's function for the change at ts, acknowledges and commits.
func (r *run) execute(tx Txn, ts mvcc.Timestamp) outcome {
	tx.SetOrigin(r.origin)
	r.obs.stats.sizes.Observe(1)
	r.obs.stats.started(tx.StartTS(), ts)
	defer r.obs.stats.took.Since(time.Now())
	r.span = r.traces.Run(ts, r.obs.spec.Name)
	tx.Trace(r.span)
	failed, err := failures(r.user(tx, []percolator.Notification{r.notification(ts)}), []*run{r})
	if err = cmp.Or(err, failed[r]); err != nil {
		r.drop(tx)
		return r.traced(r.blamed(tx, err))
	}
	return r.traced(r.commit(tx))
}

// blamed is the outcome after the user's function has failed with err for this change.
func (r *run) blamed(tx Txn, err error) outcome {
	out := r.judge(tx.StartTS(), err, r.owns(err))
	if out.kind == interrupted {
		r.uncharge()
	}
	out.start = tx.StartTS()
	return out
}

// traced ends the run's span and returns the outcome.
func (r *run) traced(out outcome) outcome {
	if r.span == nil {
		return out
	}
	r.span.Text("percolator.result", out.kind.String())
	r.span.Number("percolator.attempt", uint64(r.attempts))
	r.span.Number("percolator.retry", uint64(r.retries))
	if out.err != nil {
		r.span.Fail(out.kind.String())
	}
	r.span.End()
	return out
}

// exited is the outcome when the user's function has ended the goroutine: do did not
// return.
func (r *run) exited() outcome {
	if r.tx == nil || !r.phase.CompareAndSwap(phaseUser, phaseReturned) {
		return outcome{kind: abandoned, err: errExited}
	}
	r.drop(r.tx)
	return r.traced(r.judge(r.tx.StartTS(), errExited, false))
}

// check decides whether the cell is dirty at the transaction's start timestamp, and as of
// which change. If not, the outcome says what has become of it.
func (r *run) check(ctx context.Context, tx Txn) (due bool, ts mvcc.Timestamp, out outcome) {
	if r.obs.spec.Weak {
		return r.checkWeak(ctx, tx)
	}
	// Both at one timestamp: the change, and up to where the observer has acknowledged.
	recs, err := tx.GetRecords(ctx, r.cell, r.obs.ack(r.cell))
	if err != nil {
		return false, 0, r.retry(err)
	}
	return r.compare(ctx, recs[0], recs[1])
}

// compare is check once the records of the cell and of the acknowledgment are read.
func (r *run) compare(ctx context.Context, cell,
	acked mvcc.ReadResult) (due bool, ts mvcc.Timestamp, out outcome) {
	ack, err := notify.DecodeAck(acked.Value)
	if err != nil {
		return false, 0, r.failed(r.tx.StartTS(), err)
	}
	changed := cell.CommitTS
	// A tablet that does not say what the change goes back to may have any reason.
	r.origin = max(cell.Origin, 1)
	if due, ts := isDue(changed, ack, r.known); due {
		return true, ts, outcome{}
	}
	// Acknowledged, as far as the cell tells. The entry says whether a replay was asked
	// for, which a hint does not know.
	n, there, err := r.entry(ctx)
	switch {
	case err != nil:
		return false, 0, r.retry(err)
	case !there:
		return false, 0, outcome{kind: clean}
	case n.TS > r.tx.StartTS(): // changed since this transaction began
		return false, 0, outcome{kind: clean, left: n.TS}
	}
	if due, ts := isDue(changed, ack, &n); due {
		r.known, r.origin = &n, min(n.Origin(), r.origin)
		return true, ts, outcome{}
	}
	// The entry is left over from a run that has committed and could not clear it.
	return false, 0, r.clear(clean, mvcc.ClearNotifyRequest{
		Cell: r.cell, UpTo: min(r.tx.StartTS(), n.TS), Ended: r.tx.StartTS(),
	})
}

// isDue is the test of §2.4: written after the last acknowledgment? A replay counts as
// written when it was asked for.
func isDue(changed, ack mvcc.Timestamp, n *mvcc.Notify) (bool, mvcc.Timestamp) {
	if n != nil && n.Replay && n.TS > ack {
		return true, max(changed, n.TS)
	}
	return changed > ack, changed
}

// entry is the notify entry to judge by: the one that was walked, else the present one.
func (r *run) entry(ctx context.Context) (mvcc.Notify, bool, error) {
	if r.known != nil {
		return *r.known, true, nil
	}
	return r.client.Notification(ctx, r.cell)
}

// checkWeak looks whether the notification is still there: a weak one acknowledges
// nothing, so the entry itself is all there is to know.
func (r *run) checkWeak(ctx context.Context, tx Txn) (bool, mvcc.Timestamp, outcome) {
	// What is cleared afterwards is what was there at this timestamp: it must be taken
	// before anything is looked at.
	if _, err := tx.Start(ctx); err != nil {
		return false, 0, r.retry(err)
	}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil:
		return false, 0, r.retry(err)
	case !there:
		return false, 0, outcome{kind: clean}
	case n.ParkedTS != 0: // only a replay or a newer notification makes it run
		return false, 0, outcome{kind: clean}
	case n.TS > tx.StartTS():
		// The run could not clear it, and would not see what the notifier wrote: begin
		// anew.
		return false, 0, outcome{kind: clean, left: n.TS}
	}
	r.known, r.origin = &n, n.Origin()
	return true, n.TS, outcome{}
}

// user calls the user's function with its deadline and turns a panic into an error.
func (r *run) user(tx Txn, changes []percolator.Notification) (err error) {
	r.phase.Store(phaseUser)
	deadline := r.obs.spec.Deadline
	ctx, cancel := context.WithTimeout(txn.WithOrigin(r.span.In(r.base), r.origin), deadline)
	defer cancel()
	alarm := time.AfterFunc(deadline+r.grace, r.overdue)
	defer alarm.Stop()
	err = r.call(ctx, tx.User(), changes)
	// The dispatcher has given up, and counted the failure: nothing may be committed now.
	if !r.phase.CompareAndSwap(phaseUser, phaseReturned) {
		return errAbandoned
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &deadlineError{deadline: deadline, cause: err}
	}
	return err
}

func (r *run) call(ctx context.Context, tx *percolator.Tx,
	changes []percolator.Notification) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	if r.obs.spec.BatchFunc != nil {
		return r.obs.spec.BatchFunc(ctx, tx, changes)
	}
	return r.obs.spec.Func(ctx, tx, changes[0])
}

// notification tells the user's function of the change at ts.
func (r *run) notification(ts mvcc.Timestamp) percolator.Notification {
	return percolator.Notification{
		Row: r.cell.Row, Column: r.obs.spec.Column, TS: percolator.Timestamp(ts),
		Attempt: int(r.attempt(ts)),
	}
}

// attempt is how many runs for the change at ts have failed before.
func (r *run) attempt(ts mvcc.Timestamp) uint32 {
	if r.known != nil && r.known.TS == ts {
		return max(r.known.Attempts, r.attempts)
	}
	return r.attempts
}

// commit acknowledges and commits in one transaction. The acknowledgment clears the
// notification (docs/adr/0048); that of a weak observer is cleared afterwards.
func (r *run) commit(tx Txn) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	start, ack := tx.StartTS(), r.obs.ack(r.cell)
	if !r.obs.spec.Weak {
		tx.SetCell(ack, notify.EncodeAck(start))
	}
	ended, err := tx.Commit(ctx)
	if err != nil {
		if ctx.Err() != nil { // the step's own time was over: not the function's fault
			return r.retry(err)
		}
		return r.judge(start, err, true)
	}
	r.obs.stats.commits.Add(1)
	if !r.obs.spec.Weak {
		return outcome{kind: committed, start: start, left: tx.Left()}
	}
	return r.clear(committed, mvcc.ClearNotifyRequest{
		Cell: r.cell, UpTo: start, Origin: r.origin, Ended: ended,
	})
}

// awaitRest waits until the acknowledgment has cleared the notification, if the transaction has
// committed and left that to the background: until then scanners find it, and need not look.
// The slot is free meanwhile.
func (r *run) awaitRest(tx Txn, out outcome) outcome {
	rest := tx.Rest()
	if rest == nil || r.obs.spec.Weak {
		return out
	}
	r.decided()
	select {
	case <-rest:
		out.left = tx.Left()
	case <-r.base.Done():
	}
	return out
}

// clear removes the notification up to a timestamp, never beyond the start: this run has not
// seen what was written after it. If that fails the entry stays, and the next scan finds the
// cell clean.
func (r *run) clear(kind outcomeKind, req mvcc.ClearNotifyRequest) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	left, err := r.client.ClearNotify(ctx, req)
	if err != nil {
		r.obs.logger.Debug("observer: notification not cleared", "observer", r.obs.spec.Name,
			"error", err)
	}
	return outcome{kind: kind, start: r.tx.StartTS(), left: left}
}

// drop gives up the transaction. A failure to do so leaves nothing: nothing has been
// prewritten.
func (r *run) drop(tx Txn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.base), r.timeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}
