package oracle

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file bounds how far timestamps run ahead of physical time: by maxLead. The open
// batch is answered as far as timestamps are available; the rest of it is left to the next
// batch, or waits for the clock. All of it runs on the actor's goroutine; a retry sent by
// a timer can be in flight.

// maxLead limits the lead of timestamps over physical time. A millisecond has 262,144 of them, so
// only callers that ask for far more than they can use reach the limit; then all callers wait for
// the clock. Without it one client could take years of timestamps, and everything that is measured
// by them (expiries, leases, history) would stop until the clock caught up.
const maxLead = 50 * time.Millisecond

const (
	// maxWaiting limits the timestamps that are requested and not issued yet, to those of
	// 256 ms. Requests beyond it fail at once with actorkit.ErrOverloaded, so no caller
	// waits for the clock longer than that.
	maxWaiting = 256 << 18
	// aheadPause is the time that a batch waits for physical time before it is retried.
	aheadPause = time.Millisecond
)

// retry is sent to the actor when a batch has waited for physical time.
type retry struct{ of *closed }

// awaitClock tries the present batch again after aheadPause.
func (r *receiver) awaitClock() {
	root, self, of := r.root, r.self, r.closed
	time.AfterFunc(aheadPause, func() { root.Send(self, retry{of}) })
}

// onRetry confirms leadership again for the waiting batch.
func (r *receiver) onRetry(m retry) {
	if r.underWay(m.of) {
		r.ask()
	}
}

// shorten limits the present batch to the first calls that room timestamps suffice for, and
// leaves the others to the next batch. It returns false if room does not suffice for the
// first call.
func (r *receiver) shorten(room mvcc.Timestamp) bool {
	calls, n := r.closed.calls, 0
	for n < len(calls) && mvcc.Timestamp(calls[n].Req.GetCount()) <= room {
		room -= mvcc.Timestamp(calls[n].Req.GetCount())
		n++
	}
	if n == 0 || n == len(calls) {
		return n > 0
	}
	r.closed.calls, r.rest = calls[:n:n], calls[n:]
	return true
}
