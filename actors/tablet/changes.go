package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Requests for changes (docs/adr/0072). The first one makes the leader record changes. A request
// that would find none waits here for one, up to the wait that it names (at most maxChangesWait).
// Then it gets its timestamp as a first read does, after its arrival and before its ReadIndex, and
// a read worker evaluates it. All of it runs in the tablet's turns.

// maxChangesWait limits the wait of a request for changes: its sender holds a connection's memory.
const maxChangesWait = time.Second

// changesWaiting is a request that waits for a change or for its time.
type changesWaiting struct {
	call  *Call
	until time.Time
}

// awaitChanges begins to record changes, if the call asks for them. It returns true if the call
// now waits or has been refused, and false if it must be evaluated.
func (t *Tablet) awaitChanges(call *Call) bool {
	req := call.Req.GetChanges()
	if req == nil {
		return false
	}
	if len(t.filterServable([]*Call{call})) == 0 {
		return true
	}
	record, begun := t.memory.Record()
	if begun || record.Incomplete() {
		// The record is complete above a timestamp that is requested after the record's begin. If the
		// request fails, the next request for changes repeats it.
		t.withTimestamp(func(from mvcc.Timestamp) { t.memory.Complete(record, from) })
	}
	wait := min(time.Duration(req.WaitMs)*time.Millisecond, maxChangesWait)
	if wait <= 0 || !record.Idle(mvcc.Timestamp(req.Since)) {
		return false
	}
	t.changes = append(t.changes, changesWaiting{call, time.Now().Add(wait)})
	t.waiting.arm()
	return true
}

// releaseChanges ends the waits of requests for changes: of all of them if now is zero, otherwise
// of those whose time is over by now. It requests their timestamps and, if these come at once,
// their ReadIndex. The caller handles Raft's output.
func (t *Tablet) releaseChanges(now time.Time) {
	var calls []*Call
	t.changes = slices.DeleteFunc(t.changes, func(w changesWaiting) bool {
		due := now.IsZero() || !now.Before(w.until)
		if due {
			calls = append(calls, w.call)
		}
		return due
	})
	if len(calls) == 0 {
		return
	}
	t.inHand = append(t.inHand, calls...)
	first := &t.reads.first
	first.calls = append(first.calls, t.filterServable(calls)...)
	stamped := first.stamp(t.host, t.memory, t.self)
	t.inHand = append(t.inHand, stamped...)
	t.reads.ask(stamped)
}
