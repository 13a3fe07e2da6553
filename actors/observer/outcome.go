package observer

import (
	"context"
	"errors"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/broken"
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
	committed   outcomeKind = iota // the user's function ran, and it counts
	clean                          // nothing to do: already run, or cleared
	conflict                       // another transaction was faster: run it again
	unavailable                    // the framework's own calls failed, or the outcome is unknown: run it again
	failed                         // the user's function failed: after a backoff
	parked                         // it has failed too often
	abandoned                      // the dispatcher had given up on it before it returned
	interrupted                    // the dispatcher stopped
)

// errAbandoned: the function returned after the dispatcher had given up on it.
var errAbandoned = errors.New("observer: function returned too late")

// judge turns an error of the user's function or of the commit into an outcome.
func (r *run) judge(start mvcc.Timestamp, err error) outcome {
	var late *deadlineError
	switch {
	case errors.Is(err, errAbandoned):
		return outcome{kind: abandoned, err: err}
	case r.base.Err() != nil:
		return outcome{kind: interrupted, err: err}
	case errors.As(err, &late): // whatever it returned in the end
		return r.failed(start, err)
	case transient(err):
		return r.retry(err)
	}
	return r.failed(start, err)
}

// retry is the outcome of an error that is nobody's fault: it does not count as an attempt.
func (r *run) retry(err error) outcome {
	switch {
	case r.base.Err() != nil, errors.Is(err, percolator.ErrClosed):
		return outcome{kind: interrupted, err: err}
	case errors.Is(err, percolator.ErrConflict), errors.Is(err, percolator.ErrLocked):
		return outcome{kind: conflict, err: err}
	}
	return outcome{kind: unavailable, err: err}
}

// transient: another transaction was in the way, or a node did not answer. After ErrCommitUnknown, too, the next run
// is safe: it meets what is left of this one, settles it, and then reads an acknowledgment that tells (invariant 1).
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

// failed counts a failed run in the notify entry, and parks the entry after too many (invariant 4). The count is the
// entry's own, so it survives this process, and other workers' failures are in it.
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
	req := mvcc.FailNotifyRequest{Cell: r.cell, TS: n.TS, Attempts: out.attempts, Error: cause.Error()}
	if int(out.attempts) >= r.obs.spec.MaxAttempts {
		out.kind, req.ParkedTS = parked, start
	}
	if broken.ForgetAttempts {
		req.Attempts = 0
	}
	if err := r.client.FailNotify(ctx, req); err != nil {
		out.kind = failed
		r.obs.logger.Warn("observer: failed run not recorded", "observer", r.obs.spec.Name, "error", err)
	}
	return out
}

// report counts a run that does not return, while it still goes on.
func (r *run) report(start mvcc.Timestamp) outcome {
	return r.failed(start, &deadlineError{deadline: r.obs.spec.Deadline, cause: context.DeadlineExceeded})
}
