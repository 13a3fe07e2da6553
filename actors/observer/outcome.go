package observer

// This file decides what an error of a run means: whether it counts as a failure of the observer,
// is tried again without being counted, or ends with the dispatcher. It runs on the goroutine of
// the run's invocation actor.

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// outcome is how a run has ended.
type outcome struct {
	kind     outcomeKind
	start    mvcc.Timestamp // the transaction's, if committed, clean or early
	left     mvcc.Timestamp // of a newer notification that the run could not clear; or 0
	ts       mvcc.Timestamp // of the notification for which a failure was counted
	attempts uint32         // failures so far, if failed or parked
	rest     time.Duration  // how long the cell still has to rest, if early
	err      error          // if conflict, unavailable, failed, parked or divided
	// If unavailable: the function itself returned ErrUnavailable, perhaps in order to wait;
	// no node that the run needs was away.
	postponed bool
	// If divided: the largest batch that the cell may be in from now on, and a random number
	// below 1 that the whole batch has in common.
	most  int
	share float64
}

type outcomeKind uint8

const (
	committed   outcomeKind = iota // the user's function ran, and it counts
	clean                          // there was nothing to do
	conflict                       // another transaction was faster; run again
	unavailable                    // a call failed or its outcome is unknown; run again
	failed                         // the user's function failed; run again after a backoff
	parked                         // it has failed too often
	abandoned                      // it returned after the dispatcher had given up on it
	interrupted                    // the dispatcher stopped
	early                          // the cell has changed within the observer's debounce
	divided                        // its batch came to nothing; run again in a smaller one
)

// String returns the kind as it is in traces.
func (k outcomeKind) String() string {
	return [...]string{
		"committed", "clean", "conflict", "unavailable", "failed", "parked", "abandoned",
		"interrupted", "early", "divided",
	}[k]
}

// errAbandoned reports that the function returned after the dispatcher had given up on it.
var errAbandoned = errors.New("observer: function returned too late")

// contendedRetries is the number of uncounted runs of a cell in a row that is logged. After
// the observer's MaxConflicts of them they count as one failed run, so that a cell that never
// succeeds is parked in the end.
const contendedRetries = 32

// owns reports whether an error that the user's function returned stems from the run's own
// transaction and not from the function: a read of the transaction has failed in a way that
// another run may not. The function may have wrapped the error.
func (r *run) owns(err error) bool {
	own := r.tx.Failed()
	return own != nil && transient(own) && transient(err)
}

// failures takes apart what the user's function returned for the runs: into the errors of those
// that a PartialError names, or else into one of all runs.
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
	if known < len(partial.Failed) { // it may mean another one, which would be acknowledged
		return nil, fmt.Errorf("%w: rows that were not in the batch: %w", percolator.ErrInvalid, err)
	}
	return failed, nil
}

// judge turns an error of the user's function, or if own is set of the run's own transaction,
// into an outcome. Conflicts of other transactions that the function makes count as its
// failures, because they may conflict with its own run each time. Nodes that do not answer
// are never a failure. Many repetitions in a row are counted in the end, unless the run's own
// transaction found no node to serve it.
func (r *run) judge(start mvcc.Timestamp, err error, own bool) outcome {
	var late *deadlineError
	switch {
	case errors.Is(err, errAbandoned):
		return outcome{kind: abandoned, err: err}
	case r.base.Err() != nil:
		return outcome{kind: interrupted, err: err}
	case errors.As(err, &late): // whatever it returned in the end
		return r.failed(start, err)
	case !transient(err), !own && conflicting(err), !own && errors.Is(err, percolator.ErrClosed):
		return r.failed(start, err)
	}
	out := r.retry(err)
	out.postponed = out.kind == unavailable && !own
	uncounted := out.kind == interrupted || (own && out.kind == unavailable)
	if n := r.retries + 1; n%r.obs.spec.MaxConflicts == 0 && !uncounted {
		return r.failed(start, fmt.Errorf(
			"observer: %d runs in a row came to nothing, the last with: %w", n, err))
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

// conflicting reports whether another transaction was in the way.
func conflicting(err error) bool {
	return errors.Is(err, percolator.ErrConflict) || errors.Is(err, percolator.ErrLocked)
}

// transient reports whether another transaction was in the way or a node did not answer. The
// next run is safe even after ErrCommitUnknown: it meets what is left of this one, settles it,
// and then reads the acknowledgment (invariant 1).
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

// failed counts a failed run in the notify entry, and parks the entry after MaxAttempts
// (invariant 4). The count in the entry survives this process and includes other workers'
// failures.
func (r *run) failed(start mvcc.Timestamp, cause error) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	out := outcome{kind: failed, attempts: r.attempts + 1, err: cause}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil: // it is not counted there, but the backoff grows here
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
	if r.charged.attempts != 0 && n.Attempts == r.charged.attempts { // this run is counted
		out.attempts = r.charged.attempts
	}
	req := mvcc.FailNotifyRequest{
		Cell: r.cell, TS: n.TS, Attempts: out.attempts, Error: cause.Error(),
	}
	if int(out.attempts) >= r.obs.spec.MaxAttempts {
		out.kind, req.ParkedTS = parked, start
	}
	if err := r.client.FailNotify(ctx, req); err != nil {
		out.kind = failed
		r.obs.logger.Warn("observer: recording a failed run failed", "observer", r.obs.spec.Name, "error",
			err)
	}
	return out
}

// report counts a run as failed while its function still has not returned.
func (r *run) report(start mvcc.Timestamp) outcome {
	return r.failed(start, &deadlineError{
		deadline: r.obs.spec.Deadline, cause: context.DeadlineExceeded,
	})
}
