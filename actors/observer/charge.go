package observer

import (
	"context"
	"errors"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A run that crashes its process cannot record its own failure. An attempt is therefore recorded
// before a run whose change an earlier process of this node, or a node that has died since, may
// have run; Config.Suspect returns the timestamp up to which that is possible. Other runs cost no
// extra write. Success removes the attempt with the entry.
//
// Runs concurrent with the crashing one are charged too. To separate them, each of these rows next
// runs in a batch of its own, one row after the other (suspects), so that from then on only the
// crashing one is charged.

// unfinished is the error of an attempt recorded before its run; it stays until the run ends.
const unfinished = "observer: a run started and has not ended: its process died, or it is still running"

var errUnfinished = errors.New(unfinished)

// recorded is an attempt that was recorded before its run.
type recorded struct {
	ts       mvcc.Timestamp // timestamp of the change
	attempts uint32         // attempts for the change, including this one
}

// isUnfinished reports whether the entry's last attempt was recorded before a run whose end was
// not recorded.
func isUnfinished(n *mvcc.Notify) bool {
	return n != nil && n.Attempts > 0 && n.Error == unfinished
}

// charge records an attempt before the run for the change at ts, if necessary. If goOn is false,
// the run ends with out.
func (r *run) charge(ctx context.Context, ts mvcc.Timestamp) (goOn bool, out outcome) {
	if ts > r.suspect || r.charged.attempts != 0 {
		return true, outcome{}
	}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil:
		return false, r.retry(err)
	case !there || n.ParkedTS != 0: // another worker has run or parked it
		return false, outcome{kind: clean}
	case n.TS > r.suspect: // a newer change, with its own failure count
		return true, outcome{}
	}
	r.known = &n
	req := mvcc.FailNotifyRequest{
		Cell: r.cell, TS: n.TS, Attempts: n.Attempts + 1, Error: unfinished,
		Observer: r.obs.spec.Name,
	}
	end := isUnfinished(&n) && int(n.Attempts) >= r.obs.spec.MaxAttempts
	if end {
		if err := r.beforeParking(n, n.Attempts, errUnfinished); err != nil {
			return false, outcome{kind: failed, ts: n.TS, attempts: n.Attempts,
				err: errors.Join(errUnfinished, err)}
		}
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

// uncharge removes the recorded attempt of a run that counts as nothing: the process shuts down,
// or an external service refused the run. An attempt that follows others stays.
func (r *run) uncharge() {
	if r.charged.attempts != 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.base), r.grace)
	defer cancel()
	_ = r.client.FailNotify(ctx, mvcc.FailNotifyRequest{
		Cell: r.cell, TS: r.charged.ts, Observer: r.obs.spec.Name,
	})
	r.charged = recorded{}
}
