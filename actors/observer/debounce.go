package observer

// Debounce: delays a cell until it has not changed for the observer's debounce period. A delayed
// cell is an entry in the dispatcher's heap; the scanner or hinter that submitted it keeps its
// advisory lock, but the cell holds no slot. Everything runs on the dispatcher's goroutine except
// debounceElapsed. The age of a change is estimated from this node's clock and from hints, which
// may be wrong or missing; each run therefore checks it against the oracle's timestamps and is
// postponed if the change is too new.

import (
	"container/heap"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// maxDebounceFactor limits the delay of a cell that keeps changing, as a multiple of the debounce.
const maxDebounceFactor = 10

// rest returns the minimum age of the entry's newest change: the observer's debounce, or 0 if it
// has none or the cell has been delayed for the maximum.
func (e *entry) rest() time.Duration {
	d := e.obs.spec.Debounce
	if d > 0 && time.Since(e.since) >= maxDebounceFactor*d {
		return 0
	}
	return d
}

// remainingDebounce returns the delay from now on if the cell does not change again. A change known
// only from a hint is assumed to have just happened.
func (e *entry) remainingDebounce() time.Duration {
	left := e.rest()
	if left == 0 {
		return 0
	}
	if e.known != nil && !e.hint {
		age := time.Duration(time.Now().UnixMilli()-e.known.TS.Millis()) * time.Millisecond
		left -= max(age, 0)
	}
	return max(0, min(left, maxDebounceFactor*e.obs.spec.Debounce-time.Since(e.since)))
}

// place queues the entry, or delays it if its cell is within the debounce.
func (a *dispatcherActor) place(e *entry) {
	if d := e.remainingDebounce(); d > 0 {
		a.wait(e, d)
		return
	}
	a.enqueue(e)
}

// wait delays the entry by d, for its debounce or for the pause of a loop. If too many cells of the
// observer are delayed, or no run may start, it drops the entry; the cell stays dirty, and scanners
// submit it later.
func (a *dispatcherActor) wait(e *entry, d time.Duration) {
	if len(a.draining) > 0 || e.obs.disabled.Load() || e.obs.debouncing >= a.cfg.Queue {
		a.forget(e)
		return
	}
	if e.waits != nil {
		e.waits()
		e.waits = nil
	}
	e.state, e.due = debouncing, time.Now().Add(d)
	e.obs.debouncing++
	a.debouncing++
	heap.Push(&a.waiting, e)
	e.obs.stats.waiting.Add(1)
}

// postpone extends a cell's debounce because of the change that n or a hint reports.
func (a *dispatcherActor) postpone(e *entry, n *mvcc.Notify) {
	if n != nil && e.known != nil && n.TS <= e.known.TS {
		return // already known
	}
	e.hint = false
	e.note(n)
	if due := time.Now().Add(e.remainingDebounce()); due.After(e.due) {
		e.due = due
		heap.Fix(&a.waiting, e.index)
	}
}

// debounceElapsed reports whether the run's change, at ts, is as old as the observer's debounce requires.
// If not, the outcome has the remaining delay. The run's own goroutine calls it.
func (r *run) debounceElapsed(ts mvcc.Timestamp) (bool, outcome) {
	age := time.Duration(r.tx.StartTS().Millis()-ts.Millis()) * time.Millisecond
	if r.rest == 0 || age >= r.rest {
		return true, outcome{}
	}
	return false, outcome{kind: early, rest: r.rest - max(age, 0)}
}
