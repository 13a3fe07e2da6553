package observer

// Scheduling: starts runs and handles their ends, on the dispatcher's goroutine. Runs in
// invocation actors and the timers of backoffs and deadlines report back by messages.

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/notify"
)

// schedule starts the runs that may start and sets the timer (arm). The actor calls it after
// every message.
func (a *dispatcherActor) schedule(c actor.Context) {
	for len(a.draining) == 0 {
		obs := a.turn()
		if obs == nil {
			break
		}
		a.start(c, obs.next())
	}
	if len(a.draining) > 0 && a.batches == 0 {
		for _, idle := range a.draining {
			closeOnce(idle)
		}
	}
	a.arm(c)
}

// turn returns the next observer, round robin, that has a queued cell and a free slot and need not
// wait for an external service, or nil.
// When slow or stuck runs use up the pool, each observer may still have one run, so that no
// observer starves another.
func (a *dispatcherActor) turn() *registeredObserver {
	full, now := a.running-min(a.stuck, a.cfg.MaxStuck) >= a.cfg.Workers, time.Now()
	a.opens = time.Time{}
	for i := range a.order {
		at := (a.next + i) % len(a.order)
		l := a.order[at]
		switch {
		case !l.ready() || !l.free() || (full && l.running > 0):
		case !l.outside.admits(now, l.active()):
			if opens := l.outside.opens(l.active()); a.opens.IsZero() || opens.Before(a.opens) {
				a.opens = opens
			}
		default:
			a.next = at + 1
			return l
		}
	}
	return nil
}

// start spawns the invocation actor of a batch.
func (a *dispatcherActor) start(c actor.Context, e *entry) {
	self, root := c.Self(), c.ActorSystem().Root
	r := a.begin(e)
	r.phase = new(atomic.Int32)
	r.overdue = func() { root.Send(self, &overdue{run: r}) }
	r.decided = func() { root.Send(self, &decided{run: r}) }
	for _, other := range e.obs.batchPeers(e) {
		m := a.begin(other)
		m.phase, m.overdue, m.decided = r.phase, r.overdue, r.decided
		r.batchPeers = append(r.batchPeers, m)
	}
	e.obs.outside.started(r.began, e.obs.active(), int(e.obs.inForce.Load()))
	a.batches++
	a.running++
	e.obs.running++
	e.obs.stats.running.Add(1)
	// Not a child: a stopping dispatcher must not wait for a function that never returns.
	root.Send(root.Spawn(a.props), &begin{run: r, dispatcher: self})
}

// begin returns the run of a cell that was removed from the queue.
func (a *dispatcherActor) begin(e *entry) *run {
	r := &run{
		obs: e.obs, cell: e.cell, known: e.known, attempts: e.attempts, client: a.cfg.Client,
		timeout: a.cfg.CommitTimeout, grace: a.cfg.Grace, base: a.base, retries: e.retries, conflicts: e.conflicts,
		began: time.Now(), rest: e.rest(), reread: !e.obs.spec.Weak && (e.stale || e.mayBeParked()),
		suspect: a.cfg.Suspect(), charged: e.charged, traces: a.cfg.Traces, loops: a.loops, effects: a.effects,
	}
	if e.obs.frequent.add(e.cell.Row, r.began) {
		a.cfg.Logger.Warn("observer: many runs for the same row; if the observer writes the column that "+
			"it observes, or triggers an observer that does, the runs never end", "observer", e.obs.spec.Name, "row",
			e.cell.Row,
			"runs", frequentRuns, "within", frequentWindow)
	}
	e.state, e.run, e.hint = running, r, false
	a.runs[r] = e
	return r
}

// takeBack releases the slot of a batch, once: when it is decided or, failing that, when it
// finishes.
func (a *dispatcherActor) takeBack(lead *run) {
	if lead.free {
		return
	}
	lead.free = true
	a.running--
	lead.obs.running--
	lead.obs.stats.running.Add(-1)
}

// finish releases the slot of a batch and decides what follows for its cells.
func (a *dispatcherActor) finish(b *batch) {
	obs := b.lead.obs
	a.takeBack(b.lead)
	a.batches--
	if b.lead.phase.Load() == phaseAbandoned {
		a.stuck--
		obs.stuck--
		obs.stats.stuck.Add(-1)
	}
	if slices.ContainsFunc(b.outs, func(o outcome) bool { return o.kind == divided }) {
		obs.stats.divided.Add(1)
	}
	obs.resize(b)
	a.answered(b)
	for i, r := range b.runs {
		e, ok := a.runs[r]
		if !ok {
			continue // the batch was disbanded
		}
		delete(a.runs, r)
		obs.stats.ended(b.outs[i])
		e.run, e.charged = nil, r.charged
		obs.ended(e)
		a.settle(e, b.outs[i])
	}
}

func (a *dispatcherActor) settle(e *entry, out outcome) {
	if at, _ := e.obs.target(); at != notify.TargetOf(e.cell) {
		a.forget(e) // the observer's table is gone, or the entry is another observer's
		return
	}
	switch out.kind {
	case committed, clean:
		a.ran(e, out)
	case conflict, unavailable:
		if e.retried(out) {
			level := slog.LevelWarn
			if out.postponed { // MaxConflicts of these count as a failed run, which is logged
				level = slog.LevelDebug
			}
			a.cfg.Logger.Log(context.Background(), level,
				"observer: the runs of a row keep losing conflicts or meeting unavailable nodes", "observer",
				e.obs.spec.Name, "row", e.cell.Row, "retries", e.retries, "error", fmt.Sprint(out.err))
		}
		a.delay(e, a.retryIn(e, out))
	case refused:
		a.putBack(e)
	case divided:
		a.divide(e, out)
	case failed:
		a.log("observer: run failed", e, out)
		e.charged = recorded{}
		e.attempts, e.failedTS, e.known = out.attempts, max(out.ts, 1), nil
		e.settled()
		e.release()
		a.delay(e, backoff(a.cfg.FailureBase, a.cfg.FailureMax, int(out.attempts)-1))
	case abandoned: // counted when it was reported
		if e.parked {
			a.forget(e)
			return
		}
		e.release()
		a.delay(e, backoff(a.cfg.FailureBase, a.cfg.FailureMax, int(e.attempts)-1))
	case parked:
		a.log("observer: notification parked", e, out)
		e.obs.parkedAt = time.Now()
		a.forget(e)
	case interrupted:
		a.forget(e)
	case early:
		a.wait(e, out.rest)
	}
}

// ran drops the cell unless it has changed since the run's transaction started. If it has, the cell
// is placed again, but dropped if others wait elsewhere (backlog) or the dispatcher stops.
func (a *dispatcherActor) ran(e *entry, out outcome) {
	newer := out.left != 0 || e.hint || (e.known != nil && e.known.TS > out.start)
	again := e.retries
	e.settled()
	e.attempts, e.failedTS, e.known, e.charged = 0, 0, nil, recorded{}
	switch {
	case !newer || len(a.draining) > 0 || e.backlog:
		a.forget(e) // a newer change is dirty; a scan finds it
	case out.kind == clean && out.left != 0:
		// The change is later than the run's snapshot; the next run sees it. The pause avoids a
		// busy loop if the oracle's clock does not advance.
		e.retries = again + 1
		a.delay(e, jitter(backoff(retryBase, a.cfg.RetryMax, again)))
	default:
		e.since = time.Now()
		a.place(e)
	}
}

// abandon abandons a run whose function does not return. The run counts as failed, its slot is
// replaced up to MaxStuck times, and its cell stays running. A batch counts for none of its cells:
// each is queued for a run of its own.
func (a *dispatcherActor) abandon(c actor.Context, r *run) {
	e, ok := a.runs[r]
	if !ok || !r.phase.CompareAndSwap(phaseUser, phaseAbandoned) {
		return
	}
	a.stuck++
	e.obs.stuck++
	e.obs.ended(e)
	e.obs.stats.stuck.Add(1)
	a.cfg.Logger.Error("observer: function ignores the cancellation of its context", "observer",
		e.obs.spec.Name, "row", e.cell.Row,
		"deadline", e.obs.spec.Deadline, "stuck", a.stuck, "max_replaced_slots", a.cfg.MaxStuck,
		"batch", 1+len(r.batchPeers))
	if len(r.batchPeers) > 0 {
		a.disband(r) // it is unknown which cell blocks the function
		return
	}
	root := c.ActorSystem().Root
	root.Send(root.Spawn(a.props), &report{run: r, dispatcher: c.Self()})
}

// reported applies the recorded failure of an abandoned run, which may have ended in the
// meantime.
func (a *dispatcherActor) reported(r *run, out outcome) {
	r.obs.stats.ended(out)
	if out.kind == parked {
		r.obs.parkedAt = time.Now()
	}
	e, ok := a.entries[r.cell]
	if !ok {
		return
	}
	e.attempts, e.failedTS = max(e.attempts, out.attempts), max(e.failedTS, out.ts, 1)
	e.release()
	switch {
	case out.kind != parked:
	case e.run == r:
		e.parked = true
	case e.state == waiting: // the run has ended in the meantime
		a.resume(e)
		a.forget(e)
	}
}

// arm sets the timer to the end of the first backoff or debounce, or to the time from which an
// observer that waits for an external service may run.
func (a *dispatcherActor) arm(c actor.Context) {
	first := a.opens
	if len(a.waiting) > 0 && (first.IsZero() || a.waiting[0].due.Before(first)) {
		first = a.waiting[0].due
	}
	if first.IsZero() || a.ended {
		return
	}
	if !a.armed.IsZero() && !first.Before(a.armed) {
		return
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	self, root := c.Self(), c.ActorSystem().Root
	a.armed = first
	a.timer = time.AfterFunc(time.Until(first), func() { root.Send(self, &wake{}) })
}

// jitter returns a random duration in [d/2, d], so that conflicting runs do not coincide again.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// drain drops all cells that are not running. idle is closed when no run is left.
func (a *dispatcherActor) drain(idle chan struct{}) {
	a.draining = append(a.draining, idle)
	for _, e := range a.entries {
		if e.state != running {
			a.forget(e)
		}
	}
	for _, l := range a.order {
		l.emptied()
	}
	a.waiting, a.debouncing = nil, 0
}

// stop ends the actor, drained or not, and releases all cells.
func (a *dispatcherActor) stop() {
	a.ended = true
	for _, e := range a.entries {
		a.forget(e)
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	for _, idle := range a.draining {
		closeOnce(idle)
	}
}

func (a *dispatcherActor) log(text string, e *entry, out outcome) {
	a.cfg.Logger.Warn(text, "observer", e.obs.spec.Name, "row", e.cell.Row, "attempts",
		out.attempts,
		"max_attempts", e.obs.spec.MaxAttempts, "error", fmt.Sprint(out.err))
}

// closeOnce closes a channel that only the dispatcher closes.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
