package observer

// Classification of a run's errors: a counted failure of the observer, an uncounted retry, or the
// end of the dispatcher. It runs on the goroutine of the run's invocation actor.

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// outcome is the result of a run.
type outcome struct {
	kind     outcomeKind
	start    mvcc.Timestamp // start timestamp of the transaction, if committed, clean or early
	left     mvcc.Timestamp // timestamp of a newer notification that the run could not clear, or 0
	ts       mvcc.Timestamp // timestamp of the notification for which a failure was counted
	attempts uint32         // failures so far, if failed or parked
	rest     time.Duration  // remaining debounce of the cell, if early
	err      error          // if conflict, unavailable, failed, parked, divided or refused
	wait     time.Duration  // the delay given to percolator.RetryAfter, if refused
	// If unavailable: the function itself returned the error, such as ErrUnavailable, perhaps in
	// order to wait; the run's own transaction did not fail.
	postponed bool
	// If divided: the largest batch that may include the cell from now on.
	most int
	// If divided, or postponed in a batch: a random number above 0, at most 1, shared by the whole
	// batch; otherwise 0.
	share float64
}

type outcomeKind uint8

const (
	committed   outcomeKind = iota // the user's function ran and its writes are committed
	clean                          // there was nothing to do
	conflict                       // the run conflicted with another transaction; run again
	unavailable                    // a call failed or its outcome is unknown; run again
	failed                         // the user's function failed; run again after a backoff
	parked                         // the change has failed MaxAttempts times
	abandoned                      // the function returned after the run was abandoned
	interrupted                    // the dispatcher stopped
	early                          // changed within the debounce, or slowed as a loop
	divided                        // the run's batch was split; run again in a smaller one
	refused                        // an external service refused the run; run again after the wait
)

// String returns the kind's name in traces.
func (k outcomeKind) String() string {
	return [...]string{
		"committed", "clean", "conflict", "unavailable", "failed", "parked", "abandoned",
		"interrupted", "early", "divided", "refused",
	}[k]
}

// errAbandoned reports that the function returned after the dispatcher had abandoned it.
var errAbandoned = errors.New("observer: function returned too late")

// contendedRetries is the number of consecutive uncounted runs of a cell after which they are
// logged. MaxConflicts of them count as one failed run, so that a cell that never succeeds is
// eventually parked.
const contendedRetries = 32

// owns reports whether an error that the user's function returned stems from the run's own
// transaction rather than from the function: a read of the transaction failed in a way that
// another run may not. The function may have wrapped the error.
func (r *run) owns(err error) bool {
	own := r.tx.Failed()
	return own != nil && transient(own) && transient(err)
}

// failures splits the error of the user's function by runs: into the errors of the runs that a
// PartialError names, or one error for all runs, also if a PartialError is wrapped or names other
// rows.
func failures(err error, runs []*run) (map[*run]error, error) {
	partial, ok := err.(*percolator.PartialError) //nolint:errorlint // wrapped it may be one of several
	switch {
	case !ok:
		return nil, err
	case partial == nil:
		return nil, nil
	}
	failed, known := map[*run]error{}, 0
	for _, r := range runs {
		err, named := partial.Failed[r.cell.Row]
		if named {
			known++
		}
		if err != nil {
			failed[r] = err
		}
	}
	if known < len(partial.Failed) { // another row may have failed: it would be acknowledged
		return nil, fmt.Errorf("%w: rows that were not in the batch: %w", percolator.ErrInvalid, err)
	}
	return failed, nil
}

// classify converts an error of the user's function, or of the run's own transaction if own is set,
// into an outcome. A refusal by an external service counts as nothing, even after the deadline.
// Conflicts of other transactions that the function starts count as its
// failures, because they may conflict with its own run each time. Unavailable nodes by themselves
// are no failure. Every MaxConflicts-th consecutive repetition counts as one, unless the run's own
// transaction found no node to serve it.
func (r *run) classify(start mvcc.Timestamp, err error, own bool) outcome {
	var late *deadlineError
	wait, refusal := refusalOf(err)
	switch {
	case errors.Is(err, errAbandoned):
		return outcome{kind: abandoned, err: err}
	case r.base.Err() != nil:
		return outcome{kind: interrupted, err: err}
	case refusal:
		return outcome{kind: refused, err: err, wait: wait}
	case errors.As(err, &late): // regardless of what it returned
		return r.failed(start, err)
	case !transient(err), !own && conflicting(err), !own && errors.Is(err, percolator.ErrClosed):
		return r.failed(start, err)
	}
	out := r.retry(err)
	out.postponed = out.kind == unavailable && !own
	uncounted := out.kind == interrupted || (own && out.kind == unavailable)
	if n := r.conflicts + 1; n%r.obs.spec.MaxConflicts == 0 && !uncounted {
		return r.failed(start, fmt.Errorf(
			"observer: %d consecutive runs had no result, the last failed with: %w", n, err))
	}
	return out
}

// retry returns the outcome of an error that does not count as an attempt.
func (r *run) retry(err error) outcome {
	switch {
	case r.base.Err() != nil, errors.Is(err, percolator.ErrClosed):
		return outcome{kind: interrupted, err: err}
	case conflicting(err):
		return outcome{kind: conflict, err: err}
	}
	return outcome{kind: unavailable, err: err}
}

// conflicting reports whether err is a conflict with another transaction.
func conflicting(err error) bool {
	return errors.Is(err, percolator.ErrConflict) || errors.Is(err, percolator.ErrLocked)
}

// transient reports whether err is a conflict, an unavailable or overloaded node, an unknown
// outcome or a closed client. The next run is safe even after ErrCommitUnknown: it resolves the
// locks of the failed one and then reads the acknowledgment.
func transient(err error) bool {
	for _, target := range []error{
		percolator.ErrConflict, percolator.ErrLocked, percolator.ErrCommitUnknown,
		percolator.ErrUnavailable, percolator.ErrOverloaded, percolator.ErrClosed,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// failed counts a failed run in the notify entry, and parks the entry after MaxAttempts, unless
// the observer's OnParked fails. The count in the entry survives this process and includes other
// workers' failures.
func (r *run) failed(start mvcc.Timestamp, cause error) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	out := outcome{kind: failed, attempts: r.attempts + 1, err: cause}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil: // the failure is not recorded, but the backoff grows
		return out
	case !there:
		return outcome{kind: clean, err: cause} // another worker's run has succeeded
	case n.ParkedTS != 0:
		out.kind, out.attempts = parked, n.Attempts
		return out
	case n.TS > start: // a newer change, which this run did not see, has its own count
		out.ts, out.attempts = n.TS, 1
		return out
	}
	out.ts, out.attempts = n.TS, n.Attempts+1
	if r.charged.attempts != 0 && n.Attempts == r.charged.attempts { // this run is counted already
		out.attempts = r.charged.attempts
	}
	req := mvcc.FailNotifyRequest{
		Cell: r.cell, TS: n.TS, Attempts: out.attempts, Error: cause.Error(),
		Observer: r.obs.spec.Name,
	}
	if int(out.attempts) >= r.obs.spec.MaxAttempts {
		if err := r.beforeParking(n, out.attempts, cause); err != nil {
			out.err = errors.Join(cause, err)
			req.Error = out.err.Error()
		} else {
			out.kind, req.ParkedTS = parked, start
		}
		var renewed context.CancelFunc // the call of OnParked may have used up the first timeout
		ctx, renewed = context.WithTimeout(r.base, r.timeout)
		defer renewed()
	}
	if err := r.client.FailNotify(ctx, req); err != nil {
		out.kind = failed
		r.obs.logger.Warn("observer: recording a failed run failed", "observer", r.obs.spec.Name, "error",
			err)
	}
	return out
}

// report counts a run as failed while its function has not returned.
func (r *run) report(start mvcc.Timestamp) outcome {
	return r.failed(start, &deadlineError{
		deadline: r.obs.spec.Deadline, cause: context.DeadlineExceeded,
	})
}
