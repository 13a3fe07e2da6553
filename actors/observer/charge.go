package observer

import (
	"context"
	"errors"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A run that crashes its process cannot record its own failure. An attempt is therefore recorded in
// the notify entry before a run whose change may have been run by a process that is dead by now:
// this node's previous one, another node's or a worker's. Config.Suspect returns the timestamp up
// to which that is possible. Other runs cost no extra write. A run that succeeds removes the
// attempt with the entry.
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

// suspected reports whether an attempt must be recorded before the run for the change at ts.
func (r *run) suspected(ts mvcc.Timestamp) bool {
	return ts <= r.suspect && r.charged.attempts == 0
}

// admit reads the entry, if the change may be parked or an attempt must be recorded, and charges the
// run. If goOn is false, the run ends with out.
func (r *run) admit(ctx context.Context, ts mvcc.Timestamp) (goOn bool, out outcome) {
	if !r.reread && !r.suspected(ts) {
		return true, outcome{}
	}
	n, there, err := r.client.Notification(ctx, r.cell)
	if err != nil {
		return false, r.retry(err)
	}
	return r.charge(ctx, ts, n, there)
}

// entriesToAdmit reads the entries that run.admit reads for one run, of all runs that are due, with
// one message to each tablet.
func (b *batch) entriesToAdmit(ctx context.Context, due []bool) (map[mvcc.Cell]mvcc.Notify, error) {
	var cells []mvcc.Cell
	for i, r := range b.runs {
		if due[i] && (r.reread || r.suspected(b.ts[i])) {
			cells = append(cells, r.cell)
		}
	}
	if len(cells) == 0 {
		return nil, nil
	}
	return b.lead.client.Notifications(ctx, cells)
}

// charge ends the run if its change is parked, and otherwise records an attempt before the run for
// the change at ts, if necessary. n is the entry just read; if the parameter there is false, it
// does not exist or was not needed. In this process the runs of one cell follow one another, so the
// entry shows whether an earlier one has parked the change, and no change fails here more than
// MaxAttempts times.
func (r *run) charge(ctx context.Context, ts mvcc.Timestamp, n mvcc.Notify,
	there bool) (goOn bool, out outcome) {
	switch {
	case n.ParkedTS != 0: // only a replay or a newer change runs it again
		return false, outcome{kind: clean}
	case !r.suspected(ts):
		return true, outcome{}
	case !there: // another worker has run it
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

// uncharge removes the attempt that was recorded before a run that counts as none, because the
// process shuts down or an external service refused the run. It removes only the first attempt of a
// change: the record of a later one counts the earlier ones too, and stays.
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
