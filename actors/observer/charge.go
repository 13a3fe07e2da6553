package observer

import (
	"context"
	"errors"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A run that ends its process cannot count itself. So an attempt is recorded before a run whose
// change may have been met before, by an earlier process of this node or by a node that has
// died since; Config.Suspect says up to which timestamp. Other runs cost no extra write.
// Success removes the attempt with the entry, like any other.
//
// Runs beside the one that ends the process are charged as well. To tell them apart, each runs
// alone of its observer next time: from then on only the one that ends the process is charged.

// unfinished is the error of an attempt that was recorded before its run, until the run ends.
const unfinished = "observer: a run was begun and has not ended: its process died, or it is still running"

var errUnfinished = errors.New(unfinished)

// recorded is an attempt that was recorded before its run.
type recorded struct {
	ts       mvcc.Timestamp // of the change
	attempts uint32         // of the change, with this one
}

// isUnfinished reports whether the entry's last attempt was recorded before a run that is not
// known to have ended.
func isUnfinished(n *mvcc.Notify) bool {
	return n != nil && n.Attempts > 0 && n.Error == unfinished
}

// charge records an attempt before the run for the change at ts, if that is necessary. Unless
// goOn the run ends with the outcome.
func (r *run) charge(ctx context.Context, ts mvcc.Timestamp) (goOn bool, out outcome) {
	if ts > r.suspect || r.charged.attempts != 0 {
		return true, outcome{}
	}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil:
		return false, r.retry(err)
	case !there || n.ParkedTS != 0: // another worker has run it
		return false, outcome{kind: clean}
	case n.TS > r.suspect: // a newer change, with a count of its own
		return true, outcome{}
	}
	r.known = &n
	req := mvcc.FailNotifyRequest{
		Cell: r.cell, TS: n.TS, Attempts: n.Attempts + 1, Error: unfinished,
	}
	end := isUnfinished(&n) && int(n.Attempts) >= r.obs.spec.MaxAttempts
	if end {
		req.Attempts, req.ParkedTS = n.Attempts, r.tx.StartTS()
	}
	if err := r.client.FailNotify(ctx, req); err != nil {
		return false, r.retry(err)
	}
	if end {
		return false, outcome{kind: parked, ts: n.TS, attempts: n.Attempts, err: errUnfinished}
	}
	r.charged = recorded{n.TS, req.Attempts}
	return true, outcome{}
}

// uncharge removes the recorded attempt when the process stops in an orderly way before the run
// has ended. An attempt that follows others stays.
func (r *run) uncharge() {
	if r.charged.attempts != 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.base), r.grace)
	defer cancel()
	_ = r.client.FailNotify(ctx, mvcc.FailNotifyRequest{Cell: r.cell, TS: r.charged.ts})
}
