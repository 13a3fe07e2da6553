package observer

// Run lifecycle: from the dirtiness check to clearing the notification, on the goroutine of the
// invocation actor. The dispatcher reads and writes only phase, which decides whether the user's
// function returned before the dispatcher abandoned it.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// run is one run of an observer for one cell. It belongs to its invocation actor; phase is shared
// with the dispatcher.
type run struct {
	obs   *registeredObserver
	cell  mvcc.Cell    // the notify cell
	known *mvcc.Notify // the notify entry that a scan found; nil for a hint
	// attempts is the number of failed runs for this change that the dispatcher has counted.
	attempts uint32
	retries  int // consecutive runs for it that neither committed nor counted as failed
	// conflicts is the number of those that count towards MaxConflicts.
	conflicts int
	reread    bool           // read the entry before the function: the change may be parked already
	rest      time.Duration  // minimum age of the change; 0 for none
	began     time.Time      // when the dispatcher started it
	suspect   mvcc.Timestamp // a process that is dead by now may have run changes up to it
	charged   recorded       // zero if no attempt was recorded before the run
	client    Client
	timeout   time.Duration // limit of each step around the user's function
	grace     time.Duration
	base      context.Context // canceled by Dispatcher.Stop; carries the database
	phase     *atomic.Int32
	tx        Txn            // nil before it has started
	origin    mvcc.Timestamp // origin of the change, set by check
	cause     mvcc.Timestamp // start timestamp of the transaction that wrote the change, set by check; 0: unknown
	loops     *loops
	effects   *effectsBook
	traces    *tracing.Book
	span      *tracing.Span // span of the user's function and the commit; nil: not traced
	// overdue is called once if the function has not returned Grace after its deadline.
	overdue func()
	// decided notifies the dispatcher that the run's batch has committed and no longer needs its
	// slot. It is called at most once.
	decided func()
	free    bool // whether the slot was released; belongs to the dispatcher
	// batchPeers, set in the batch's first run, are the others; they share phase, overdue and
	// decided.
	batchPeers []*run
}

// Phases of a run. The return of the user's function and the dispatcher's abandoning it both
// leave phaseUser by compare-and-swap; the loser does nothing.
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
	stack string
}

// Error returns the panic's value, its position and the stack. It is truncated to 1 KiB when it
// is stored.
func (e *panicError) Error() string {
	return fmt.Sprintf("observer: panic: %v, at %s%s", e.value, e.at, e.stack)
}

// recovered returns the error of a panic, with the stack of the user's function: the frames from
// the panic up to this package. It must be called by the deferred function that recovered it.
func recovered(value any) *panicError {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers[:])])
	e, panicked := &panicError{value: value, at: "unknown"}, false
	for {
		f, more := frames.Next()
		switch inRuntime := strings.HasPrefix(f.Function, "runtime."); {
		case panicked && strings.HasPrefix(f.Function, thisPackage):
			return e
		case panicked && !inRuntime:
			if e.stack == "" {
				e.at = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
			}
			e.stack += fmt.Sprintf("\n%s\n\t%s:%d", f.Function, f.File, f.Line)
		case f.Function == "runtime.gopanic":
			panicked = true
		}
		if !more {
			return e
		}
	}
}

// thisPackage is the prefix of the names of run's methods, which call the user's functions.
const thisPackage = "github.com/percolator-go/percolator/actors/observer.(*run)."

// deadlineError is the error of a function that did not return before its deadline.
type deadlineError struct {
	deadline time.Duration
	cause    error
}

// Error names the deadline and the function's own error, if any.
func (e *deadlineError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("observer: deadline of %v exceeded", e.deadline)
	}
	return fmt.Sprintf("observer: deadline of %v exceeded: %v", e.deadline, e.cause)
}

// Unwrap returns the function's own error, nil if it returned none, or context.DeadlineExceeded if
// it has not returned.
func (e *deadlineError) Unwrap() error { return e.cause }

// do performs the run and returns its outcome. Each step other than the user's function is limited
// by the step timeout.
func (r *run) do() outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	tx, err := r.client.Begin(ctx, r.obs.spec.Name)
	if err != nil {
		return r.retry(err)
	}
	r.tx = tx
	tx.Expect(r.cell)
	due, ts, out := r.check(ctx, tx)
	if due {
		due, out = r.debounceElapsed(ts)
	}
	if due {
		due, out = r.loopPaused()
	}
	if due {
		due, out = r.admit(ctx, ts)
	}
	if !due {
		r.drop(tx)
		out.start = tx.StartTS()
		return out
	}
	// The function has its own deadline, which may be longer than a step's.
	cancel()
	return r.awaitBackground(tx, r.execute(tx, ts))
}

// execute calls the user's function for the change at ts, acknowledges and commits.
func (r *run) execute(tx Txn, ts mvcc.Timestamp) outcome {
	tx.SetOrigin(r.origin)
	r.noteCause(tx.StartTS())
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

// loopPaused reports whether the run may start now. If its row sets itself off, the outcome has the
// remaining pause.
func (r *run) loopPaused() (bool, outcome) {
	if left := r.loops.left(loopKey{r.obs, r.cell}, r.cause, time.Now()); left > 0 {
		return false, outcome{kind: early, rest: left}
	}
	return true, outcome{}
}

// noteCause records the cause of the run before its effects can cause another run.
func (r *run) noteCause(start mvcc.Timestamp) {
	if cycle := r.loops.began(loopKey{r.obs, r.cell}, start, r.cause, time.Now()); cycle != "" {
		r.obs.logger.Warn("observer: a row sets itself off; its runs now wait, each longer than the last",
			"observer", r.obs.spec.Name, "row", r.cell.Row, "cycle", cycle, "runs", r.loops.limit, "within", loopWindow)
	}
}

// noteEffects records the reads and writes of the run.
func (r *run) noteEffects(e txn.Effects, batch int) {
	r.effects.add(r.obs.spec.Name, r.cell.Row, Effects{Start: r.tx.StartTS(), Batch: batch, Effects: e})
}

// blamed returns the outcome of a run whose function failed with err for this change.
func (r *run) blamed(tx Txn, err error) outcome {
	out := r.classify(tx.StartTS(), err, r.owns(err))
	if out.kind == interrupted || out.kind == refused {
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

// exited returns the outcome if do did not return, because the user's function ended the
// goroutine or the code around it panicked.
func (r *run) exited() outcome {
	if r.tx == nil || !r.phase.CompareAndSwap(phaseUser, phaseReturned) {
		return outcome{kind: abandoned, err: errExited}
	}
	r.drop(r.tx)
	return r.traced(r.classify(r.tx.StartTS(), errExited, false))
}

// check decides whether the cell is dirty at the transaction's start timestamp, and returns the
// timestamp of the change. If due is false, the run ends with out.
func (r *run) check(ctx context.Context, tx Txn) (due bool, ts mvcc.Timestamp, out outcome) {
	if r.obs.spec.Weak {
		return r.checkWeak(ctx, tx)
	}
	// The change and the acknowledgment are read at one timestamp.
	recs, err := tx.GetRecords(ctx, r.obs.observed(r.cell), r.obs.ack(r.cell))
	if err != nil {
		return false, 0, r.retry(err)
	}
	return r.compare(ctx, recs[0], recs[1])
}

// compare completes check with the records of the cell and of its acknowledgment.
func (r *run) compare(ctx context.Context, cell,
	acked mvcc.ReadResult) (due bool, ts mvcc.Timestamp, out outcome) {
	ack, _, err := notify.DecodeAck(acked.Value)
	if err != nil {
		return false, 0, r.failed(r.tx.StartTS(), err)
	}
	changed, origin := cell.CommitTS, cell.Origin
	if r.cell.IsAck() {
		origin = acked.Origin
	}
	// Without a reported origin, as from a tablet of an older build, 1 stands for the oldest
	// possible one, so that every wait for effects includes this run.
	r.origin, r.cause = max(origin, 1), cell.StartTS
	if due, ts := isDue(changed, ack, r.known); due {
		return true, ts, outcome{}
	}
	// Acknowledged, according to the cell. Only the entry records a requested replay, and a hint
	// does not carry the entry.
	n, there, err := r.entry(ctx)
	switch {
	case err != nil:
		return false, 0, r.retry(err)
	case !there:
		return false, 0, outcome{kind: clean}
	case n.TS > r.tx.StartTS(): // changed since this transaction started
		return false, 0, outcome{kind: clean, left: n.TS}
	}
	if due, ts := isDue(changed, ack, &n); due {
		r.known, r.origin = &n, min(n.Origin(), r.origin)
		return true, ts, outcome{}
	}
	// The entry was left by a run that committed and could not clear it.
	return false, 0, r.clear(clean, mvcc.ClearNotifyRequest{
		Cell: r.cell, UpTo: min(r.tx.StartTS(), n.TS), Ended: r.tx.StartTS(),
	})
}

// isDue is the test of §2.4: the change is later than the last acknowledgment. A replay counts as
// a change at the time of its request.
func isDue(changed, ack mvcc.Timestamp, n *mvcc.Notify) (bool, mvcc.Timestamp) {
	if n != nil && n.Replay && n.TS > ack {
		return true, max(changed, n.TS)
	}
	return changed > ack, changed
}

// entry returns the notify entry to check: the one a scan found, otherwise the current one.
func (r *run) entry(ctx context.Context) (mvcc.Notify, bool, error) {
	if r.known != nil {
		return *r.known, true, nil
	}
	return r.client.Notification(ctx, r.cell)
}

// checkWeak checks whether the notification still exists. A weak observer acknowledges nothing,
// so the entry is the only evidence.
func (r *run) checkWeak(ctx context.Context, tx Txn) (bool, mvcc.Timestamp, outcome) {
	// Only notifications up to this timestamp are cleared afterwards, so it must be obtained
	// before anything is read.
	if _, err := tx.Start(ctx); err != nil {
		return false, 0, r.retry(err)
	}
	n, there, err := r.client.Notification(ctx, r.cell)
	if err != nil {
		return false, 0, r.retry(err)
	}
	return r.compareWeak(tx, n, there)
}

// compareWeak completes checkWeak with the notification.
func (r *run) compareWeak(tx Txn, n mvcc.Notify, there bool) (bool, mvcc.Timestamp, outcome) {
	switch {
	case !there:
		return false, 0, outcome{kind: clean}
	case n.ParkedTS != 0: // only a replay or a newer notification starts it again
		return false, 0, outcome{kind: clean}
	case n.TS > tx.StartTS():
		// This run could not clear the entry and would not see what the notifier wrote: start
		// another run.
		return false, 0, outcome{kind: clean, left: n.TS}
	}
	r.known, r.origin = &n, n.Origin()
	return true, n.TS, outcome{}
}

// user calls the user's function with its deadline and converts a panic into an error.
func (r *run) user(tx Txn, changes []percolator.Notification) (err error) {
	r.phase.Store(phaseUser)
	deadline := r.obs.spec.Deadline
	ctx, cancel := context.WithTimeout(txn.WithOrigin(r.span.In(r.base), r.origin), deadline)
	defer cancel()
	alarm := time.AfterFunc(deadline+r.grace, r.overdue)
	defer alarm.Stop()
	err = r.call(ctx, tx.User(), changes)
	// If the dispatcher has abandoned the run, nothing may be committed.
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

// notification describes the change at ts to the user's function.
func (r *run) notification(ts mvcc.Timestamp) percolator.Notification {
	n := percolator.Notification{
		Row: r.cell.Row, Column: r.obs.spec.Column, CommitTS: percolator.Timestamp(ts),
		Attempt: int(r.attempt(ts)),
	}
	n.TS = n.CommitTS //nolint:staticcheck // programs may still use the former name
	return n
}

// attempt returns the number of earlier failed runs for the change at ts.
func (r *run) attempt(ts mvcc.Timestamp) uint32 {
	if r.known != nil && r.known.TS == ts {
		return max(r.known.Attempts, r.attempts)
	}
	return r.attempts
}

// commit commits the run. A strong observer's acknowledgment is in the same transaction, and clears
// the notification (docs/adr/0048). A weak observer has none: its notification is cleared afterwards.
func (r *run) commit(tx Txn) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	start, ack := tx.StartTS(), r.obs.ack(r.cell)
	if !r.obs.spec.Weak {
		tx.SetCell(ack, notify.EncodeAck(start, r.obs.version()))
	}
	ended, err := tx.Commit(ctx)
	if err != nil {
		if ctx.Err() != nil { // the step timed out; the function did not fail
			return r.retry(err)
		}
		return r.classify(start, err, true)
	}
	r.noteEffects(tx.Effects(), 1)
	r.obs.stats.commits.Add(1)
	if !r.obs.spec.Weak {
		return outcome{kind: committed, start: start, left: tx.Left()}
	}
	return r.clear(committed, mvcc.ClearNotifyRequest{
		Cell: r.cell, UpTo: start, Origin: r.origin, Ended: ended,
	})
}

// awaitBackground waits until the acknowledgment has cleared the notification, if a committed
// transaction left that to the background: until then scanners would find the entry and submit it
// again. The slot is free during the wait.
func (r *run) awaitBackground(tx Txn, out outcome) outcome {
	done := tx.BackgroundDone()
	if done == nil || r.obs.spec.Weak {
		return out
	}
	r.decided()
	select {
	case <-done:
		out.left = tx.Left()
	case <-r.base.Done():
	}
	return out
}

// clear removes the notification up to a timestamp, at most the start timestamp: this run has not
// seen later writes. If it fails, the entry stays; the next scan finds the cell clean, or runs a
// weak observer again.
func (r *run) clear(kind outcomeKind, req mvcc.ClearNotifyRequest) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	req.Observer = r.obs.spec.Name
	left, err := r.client.ClearNotify(ctx, req)
	if err != nil {
		r.obs.logger.Debug("observer: notification not cleared", "observer", r.obs.spec.Name,
			"error", err)
	}
	return outcome{kind: kind, start: r.tx.StartTS(), left: left}
}

// drop rolls the transaction back. Nothing has been prewritten, so a failure leaves nothing
// behind.
func (r *run) drop(tx Txn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.base), r.timeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}
