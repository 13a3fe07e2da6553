package oracle

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file bounds how far timestamps run ahead of physical time (invariant 6). The batch
// under way gives out what there is, leaves the rest to the next batch, or waits for the
// clock; all of it is the actor's.

// maxLead is how far timestamps may run ahead of physical time. A millisecond has 262,144
// of them, so only callers who ask for far more than they can use get there; then
// everybody waits for the clock. Without the bound one client could take years of
// timestamps, and time would stand until the clock has caught up: expiries, leases and
// history are told by it.
const maxLead = 50 * time.Millisecond

const (
	// maxWaiting is how many timestamps may be asked for and not given out yet: those of 256 ms.
	// Beyond it the answer is actorkit.ErrOverloaded, at once. A caller so waits for the clock no
	// longer than that, whatever others ask for.
	maxWaiting = 256 << 18
	// aheadPause is how long a batch waits for physical time to go on before it is tried again.
	aheadPause = time.Millisecond
)

// retry has leadership confirmed anew for a batch that has waited for physical time to go on.
type retry struct{ of *closed }

// awaitClock has the batch under way tried again soon.
func (r *receiver) awaitClock() {
	root, self, of := r.root, r.self, r.closed
	time.AfterFunc(aheadPause, func() { root.Send(self, retry{of}) })
}

func (r *receiver) onRetry(m retry) {
	if r.underWay(m.of) {
		r.ask()
	}
}

// shorten leaves the first calls of the batch under way that room timestamps are enough
// for, and the others for the next batch. It returns false if room is not enough for the
// first.
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
