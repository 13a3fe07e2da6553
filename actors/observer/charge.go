package observer

import (
	"context"
	"errors"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A run that ends its process cannot count itself. So an attempt is written before a run
// whose change may have been met before, by an earlier process of this node or by a node
// that has died since: Config.Suspect says up to when. Other runs cost no write more. The
// attempt is taken off by success like any other, with the entry.
//
// Those who were running beside the one that ends the process are charged with it. They
// are told apart by running alone, of their observer, next time: from then on only the
// one that does it is charged.

// unfinished is the error of an attempt that was written before its run, until that has ended.
const unfinished = "observer: a run was begun and has not ended: its process died, or it is still running"

var errUnfinished = errors.New(unfinished)

// isUnfinished reports whether the entry's last attempt was written before a run of whose
// end nothing is known.
func isUnfinished(n *mvcc.Notify) bool {
	return n != nil && n.Attempts > 0 && n.Error == unfinished
}

// charge writes the attempt, if one is to be, before the run for the change at ts. The
// run goes on only if goOn.
func (r *run) charge(ctx context.Context, ts mvcc.Timestamp) (goOn bool, out outcome) {
	if ts > r.suspect || r.charged != 0 {
		return true, outcome{}
	}
	n, there, err := r.client.Notification(ctx, r.cell)
	switch {
	case err != nil:
		return false, r.retry(err)
	case !there || n.ParkedTS != 0: // another worker was here
		return false, outcome{kind: clean}
	case n.TS > r.suspect: // renewed: its count begins anew
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
	r.charged = req.Attempts
	return true, outcome{}
}

// uncharge takes the attempt back when the process is stopped in good order before the
// run could end; one that others were counted before stays.
func (r *run) uncharge() {
	if r.charged != 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.base), r.grace)
	defer cancel()
	_ = r.client.FailNotify(ctx, mvcc.FailNotifyRequest{Cell: r.cell, TS: r.known.TS})
}
