package observer

import (
	"context"
	"errors"
	"fmt"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// outcome is how a run ended, for the dispatcher.
type outcome struct {
	kind  outcomeKind
	start mvcc.Timestamp // committed, clean: of the transaction
	// left: there is a newer notification than this run could clear.
	left     mvcc.Timestamp
	ts       mvcc.Timestamp // failed: of the notification that the failure was counted for
	attempts uint32         // failed, parked: failures so far
	err      error          // conflict, unavailable, failed, parked
}

type outcomeKind uint8

const (
	committed outcomeKind = iota // the user's function ran, and it counts
	clean                        // nothing to do: already run, or cleared
	conflict                     // another transaction was faster: run it again
	// the framework's own calls failed, or the outcome is unknown: run it again
	unavailable
	failed      // the user's function failed: after a backoff
	parked      // it has failed too often
	abandoned   // the dispatcher had given up on it before it returned
	interrupted // the dispatcher stopped
)

// errAbandoned: the function returned after the dispatcher had given up on it.
var errAbandoned = errors.New("observer: function returned too late")

const (
	// contendedRetries is how many runs of a cell in a row come to nothing before
	// somebody is warned.
	contendedRetries = 32
	// retriesPerAttempt is how many of them count as one failed run: what never succeeds
	// is parked at last.
	retriesPerAttempt = 64
)

// owns reports whether an error that the user's function returned is of the run's own
// transaction, and so is not the function's: a read of that has failed in a way that
// running again may mend. The function may have wrapped it.
func (r *run) owns(err error) bool {
	own := r.tx.Failed()
	return own != nil && transient(own) && transient(err)
}

// judge turns an error of the user's function or, as own says, of the run's own
// transaction into an outcome. Conflicts of a transaction that the function made by
// itself are the function's: it may conflict with its own run, each time anew. Nodes that
// do not answer are nobody's fault, whomever they do not answer. What goes on for long is
// counted in the end, unless the run's own transaction found nobody to serve it.
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
	uncounted := out.kind == interrupted || (own && out.kind == unavailable)
	if n := r.retries + 1; n%retriesPerAttempt == 0 && !uncounted {
		return r.failed(start, fmt.Errorf(
			"observer: %d runs in a row came to nothing, the last with: %w", n, err))
	}
	return out
}

// retry is the outcome of an error that is nobody's fault: it does not count as an attempt.
func (r *run) retry(err error) outcome {
	switch {
	case r.base.Err() != nil, errors.Is(err, percolator.ErrClosed):
		return outcome{kind: interrupted, err: err}
	case conflicting(err):
		return outcome{kind: conflict, err: err}
	}
	return outcome{kind: unavailable, err: err}
}

// conflicting: another transaction was in the way.
func conflicting(err error) bool {
	return errors.Is(err, percolator.ErrConflict) || errors.Is(err, percolator.ErrLocked)
}

// transient: another transaction was in the way, or a node did not answer. After
// ErrCommitUnknown, too, the next run is safe: it meets what is left of this one, settles
// it, and then reads an acknowledgment that tells (invariant 1).
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

// failed counts a failed run in the notify entry, and parks the entry after too many
// (invariant 4). The count is the entry's own, so it survives this process, and other
// workers' failures are in it.
func (r *run) failed(start mvcc.Timestamp, cause error) outcome {
	ctx, cancel := context.WithTimeout(r.base, r.timeout)
	defer cancel()
	out := outcome{kind: failed, attempts: r.attempts + 1, err: cause}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil: // not counted there, but the backoff here grows
		return out
	case !there:
		return outcome{kind: clean, err: cause} // another worker's run has succeeded
	case n.ParkedTS != 0:
		out.kind, out.attempts = parked, n.Attempts
		return out
	case n.TS > start: // a newer change, which this run did not see: its count begins at 0
		out.ts, out.attempts = n.TS, 1
		return out
	}
	out.ts, out.attempts = n.TS, n.Attempts+1
	if r.charged != 0 && n.Attempts == r.charged { // this run is counted already
		out.attempts = r.charged
	}
	req := mvcc.FailNotifyRequest{
		Cell: r.cell, TS: n.TS, Attempts: out.attempts, Error: cause.Error(),
	}
	if int(out.attempts) >= r.obs.spec.MaxAttempts {
		out.kind, req.ParkedTS = parked, start
	}
	if err := r.client.FailNotify(ctx, req); err != nil {
		out.kind = failed
		r.obs.logger.Warn("observer: failed run not recorded", "observer", r.obs.spec.Name, "error",
			err)
	}
	return out
}

// report counts a run that does not return, while it still goes on.
func (r *run) report(start mvcc.Timestamp) outcome {
	return r.failed(start, &deadlineError{
		deadline: r.obs.spec.Deadline, cause: context.DeadlineExceeded,
	})
}
