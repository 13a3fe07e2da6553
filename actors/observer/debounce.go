package observer

// This file makes cells of observers with a debounce wait until they have rested. A cell
// that waits is an entry in the dispatcher's heap of waiting ones; its finder keeps the
// advisory lock, but no slot. It runs on the dispatcher's goroutine, except rested. How
// long ago a change was is told by this node's clock and by hints, which may be wrong or
// missing; so each run looks once more, by the oracle's timestamps, and is put off if the
// change is too new.

import (
	"container/heap"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// longestRest is how many times the debounce a cell waits at most if it never rests.
const longestRest = 10

// rest returns how old the entry's newest change has to be: the observer's debounce, or 0 if
// there is none or the cell has waited for as long as it may.
func (e *entry) rest() time.Duration {
	d := e.obs.spec.Debounce
	if d > 0 && time.Since(e.since) >= longestRest*d {
		return 0
	}
	return d
}

// remainingRest returns how long the cell has to wait from now on if it does not change
// any more. Of a change that is only hinted at it is taken that it has just happened.
func (e *entry) remainingRest() time.Duration {
	left := e.rest()
	if left == 0 {
		return 0
	}
	if e.known != nil && !e.hint {
		age := time.Duration(time.Now().UnixMilli()-e.known.TS.Millis()) * time.Millisecond
		left -= max(age, 0)
	}
	return max(0, min(left, longestRest*e.obs.spec.Debounce-time.Since(e.since)))
}

// place queues the entry, or makes it wait if its cell has not rested yet.
func (a *dispatcherActor) place(e *entry) {
	if d := e.remainingRest(); d > 0 {
		a.wait(e, d)
		return
	}
	a.enqueue(e)
}

// wait makes the entry wait for d, for its debounce. If too many of the observer wait, it
// forgets the entry; the cell stays dirty, and scanners hand it out when it has rested.
func (a *dispatcherActor) wait(e *entry, d time.Duration) {
	if len(a.draining) > 0 || e.obs.held.Load() || e.obs.resting >= a.cfg.Queue {
		a.forget(e)
		return
	}
	if e.waits != nil {
		e.waits()
		e.waits = nil
	}
	e.state, e.due = resting, time.Now().Add(d)
	e.obs.resting++
	a.resting++
	heap.Push(&a.waiting, e)
	e.obs.stats.waiting.Add(1)
}

// postpone puts the end of a resting cell's wait off for a change that n or a hint tells of.
func (a *dispatcherActor) postpone(e *entry, n *mvcc.Notify) {
	if n != nil && e.known != nil && n.TS <= e.known.TS {
		return // told before
	}
	e.hint = false
	e.note(n)
	if due := time.Now().Add(e.remainingRest()); due.After(e.due) {
		e.due = due
		heap.Fix(&a.waiting, e.index)
	}
}

// rested reports whether the run's change, at ts, is as old as the observer's debounce asks
// for. If not the outcome says how long it has to wait. The run's own goroutine calls it.
func (r *run) rested(ts mvcc.Timestamp) (bool, outcome) {
	age := time.Duration(r.tx.StartTS().Millis()-ts.Millis()) * time.Millisecond
	if r.rest == 0 || age >= r.rest {
		return true, outcome{}
	}
	return false, outcome{kind: early, rest: r.rest - max(age, 0)}
}
