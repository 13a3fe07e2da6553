package observer

// Waiting for services outside. A function that such a service refuses returns the error of
// percolator.RetryAfter. Its observer then starts no run until the end of the wait, on all nodes:
// the dispatcher announces the wait to the others, which keep it by their own clocks; nothing is
// stored. The refused cells return to the front of the queue, for batches as large as before. After
// the wait one run starts. As long as no run is refused, the number of concurrent runs then
// doubles, up to the observer's limit.
//
// If the waits are short, the service limits the rate. The observer then spaces the starts of its
// runs at the rate that the service has admitted, and raises the rate now and then to find out
// whether the service admits more.
//
// The dispatcher's goroutine owns all of it. Any goroutine may call refusalOf, Refused and
// waitsOutside.

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
)

const (
	// minWait and maxWait limit a wait. If the service states no delay, the first wait is
	// firstUnknown; the later ones double up to longestUnknown.
	minWait, maxWait             = time.Millisecond, time.Hour
	firstUnknown, longestUnknown = 100 * time.Millisecond, 800 * time.Millisecond
	// announced is the shortest wait that is announced to other nodes; the message about a shorter
	// one would arrive too late.
	announced = 10 * time.Millisecond
	// maxStagger is the maximum time by which a notified node waits longer than the refused node,
	// so that usually one node tries first.
	maxStagger = 250 * time.Millisecond

	// freshWindow limits an observer's batches in flight while its process, which has just started
	// or resumed it, does not know whether the service refuses.
	freshWindow = 4
	// The window also doubles after this time, even if fewer runs than the window were admitted:
	// freshEvery applies to a process that has just started, triedEvery after a wait.
	freshEvery, triedEvery = 100 * time.Millisecond, 5 * time.Second

	// shortWait is the longest wait from which a rate is learned; a service that refuses for longer
	// is down. shortWait also bounds the gap between runs.
	shortWait = 2 * time.Second
	minGap    = time.Millisecond
	// minTrust and maxTrust bound the number of admitted runs after which gap is reduced, minStep
	// and maxStep the divisor of the reduction.
	minTrust, maxTrust = 2, 64
	minStep, maxStep   = 2, 16

	// A wait is logged if it ends at least loggedWait after the first refusal.
	loggedWait = 5 * time.Second
	// maxRefusal is the maximum length of a refusal's text for operators, in bytes.
	maxRefusal = 256
)

// Outside describes an observer's wait for an external service. It is zero if the observer does
// not wait.
type Outside struct {
	Since time.Time // time of the first refusal since a run was admitted
	Until time.Time // no run starts before
	Error string    // the refusal; empty on a node that was only told of it
}

// refusal is the message by which another node announces that an external service refuses the
// observer for d.
type refusal struct {
	observer string
	d        time.Duration
}

// refusalOf reports whether err is a refusal by an external service, and returns its wait.
func refusalOf(err error) (time.Duration, bool) {
	r, ok := errors.AsType[*percolator.RetryAfterError](err)
	if !ok {
		return 0, false
	}
	return r.Wait, true
}

// outside limits an observer's runs to what its external service admits. An observer without such
// a service is limited only briefly after the start of the process.
type outside struct {
	until time.Time // no run starts before
	since time.Time // time of the first refusal since a run was admitted; zero: none
	waits int       // waits since then
	// window is the maximum number of concurrent runs; 0 means that only the observer's own limit
	// applies. It was last doubled at grown. It doubles again when round, the number of runs
	// admitted since, reaches the window, or after the interval every.
	window, round int
	grown         time.Time
	every         time.Duration

	gap     time.Duration // least time between the starts of two runs
	last    time.Time     // start of the last run
	from    time.Time     // start of the first run since the last wait or, if gap is 0, idle period
	served  int           // runs admitted since from
	trusted int           // runs admitted since gap last changed
	trust   int           // number of them after which gap is reduced by gap/step
	step    time.Duration
	safe    time.Duration // gap before it was reduced last; 0: not since the last wait

	logged bool
	shown  atomic.Pointer[Outside] // any goroutine may read it
}

// reset forgets all refusals.
func (o *outside) reset() {
	o.until, o.since, o.waits, o.logged = time.Time{}, time.Time{}, 0, false
	o.window, o.round, o.grown, o.every = freshWindow, 0, time.Time{}, freshEvery
	o.gap, o.from, o.served = 0, time.Time{}, 0
	o.trusted, o.trust, o.step, o.safe = 0, minTrust, minStep, 0
	o.shown.Store(nil)
}

// admits reports whether another run may start while active ones are in progress.
func (o *outside) admits(now time.Time, active int) bool {
	if o.window > 0 && !o.grown.IsZero() && now.Sub(o.grown) >= o.every {
		o.grow(now)
	}
	return !o.until.After(now) && (o.gap == 0 || now.Sub(o.last) >= o.gap) &&
		(o.window == 0 || active < o.window)
}

// opens returns the earliest time at which admits may return true.
func (o *outside) opens(active int) time.Time {
	at := o.until
	if next := o.last.Add(o.gap); o.gap > 0 && next.After(at) {
		at = next
	}
	if grows := o.grown.Add(o.every); o.window > 0 && active >= o.window && grows.After(at) {
		at = grows
	}
	return at
}

// started records the start of a run while active ones are in progress; limit is the observer's
// maximum.
func (o *outside) started(now time.Time, active, limit int) {
	switch {
	case o.from.Before(o.until): // the first one since the wait
		o.learn()
		o.from, o.served, o.trusted, o.safe = now, 0, 0, 0
	case o.gap == 0 && now.Sub(o.last) > shortWait: // the observer was idle
		o.from, o.served = now, 0
	}
	if o.grown.IsZero() {
		o.grown = now
	}
	if active+1 >= limit {
		o.window = 0
	}
	o.last = now
}

// learn sets gap to the mean time per admitted run, from the first run after the previous wait to
// the end of the wait that is over now, at most shortWait. It leaves gap unchanged after a longer
// wait, or without an admitted run. If gap was reduced since the last wait, the new gap is at most
// its value before that (safe), and the next reduction is later and smaller.
func (o *outside) learn() {
	if o.served == 0 || o.from.IsZero() || o.until.Sub(o.since) > shortWait {
		return
	}
	o.gap = min(o.until.Sub(o.from)/time.Duration(o.served), shortWait)
	if o.safe > 0 { // the last reduction of gap was too large
		o.gap = min(o.gap, o.safe)
		o.trust, o.step = min(2*o.trust, maxTrust), min(2*o.step, maxStep)
	}
}

// admitted records that the service has admitted a run.
func (o *outside) admitted(now time.Time) {
	o.served++
	if o.until.After(now) {
		return // the run started before another one was refused
	}
	if !o.since.IsZero() && o.until.Sub(o.since) > shortWait { // the service was down
		o.gap, o.trust, o.step = 0, minTrust, minStep
	}
	o.since, o.waits, o.logged = time.Time{}, 0, false
	o.shown.Store(nil)
	if o.round++; o.window > 0 && o.round >= o.window {
		o.grow(now)
	}
	if o.trusted++; o.gap == 0 || o.trusted < o.trust {
		return
	}
	if o.safe > 0 { // the service admits the reduced gap
		o.trust, o.step = minTrust, max(o.step/2, minStep)
	}
	o.trusted, o.safe = 0, o.gap
	if o.gap -= o.gap / o.step; o.gap < minGap {
		o.gap = 0
	}
}

// grow doubles the window, and removes it once it exceeds percolator.DefaultConcurrency.
func (o *outside) grow(now time.Time) {
	if o.window, o.round, o.grown = 2*o.window, 0, now; o.window > percolator.DefaultConcurrency {
		o.window = 0
	}
}

// refuse records that the service refuses runs for d, and returns d clamped to minWait and
// maxWait, or a backoff if d is not positive. news reports whether the end of the wait moves by
// more than half of wait. If the last wait ended more than stale ago, the backoff and since start
// again.
func (o *outside) refuse(now time.Time, d, stale time.Duration) (wait time.Duration, news bool) {
	if o.since.IsZero() || now.Sub(o.until) > stale {
		o.since, o.waits = now, 0
	}
	if !o.until.After(now) { // during a wait another refusal does not count again
		o.waits++
	}
	if d <= 0 {
		d = backoff(firstUnknown, longestUnknown, o.waits-1)
	}
	d = min(max(d, minWait), maxWait)
	end := now.Add(d)
	news = end.Sub(o.until) > d/2
	if end.After(o.until) {
		o.until = end
	}
	o.window, o.round, o.grown, o.every = 1, 0, o.until, triedEvery
	return d, news
}

// show publishes the wait with cause, or with the previous cause if cause is nil.
func (o *outside) show(cause error) {
	shown := Outside{Since: o.since, Until: o.until}
	if before := o.shown.Load(); before != nil {
		shown.Error = before.Error
	}
	if cause != nil {
		text := cause.Error()
		shown.Error = strings.ToValidUTF8(text[:min(len(text), maxRefusal)], "")
	}
	o.shown.Store(&shown)
}

// answered records the external service's answers to the runs of a batch.
func (a *dispatcherActor) answered(b *batch) {
	l := b.lead.obs
	var first *outcome
	d := time.Duration(0)
	for i := range b.outs {
		if out := &b.outs[i]; out.kind == refused {
			first, d = cmp.Or(first, out), max(d, out.wait)
		}
	}
	switch {
	case first != nil:
		a.refuse(l, d, first.err)
	case b.lead.phase.Load() == phaseReturned:
		if l.outside.logged {
			a.cfg.Logger.Info("observer: the outside service admits runs again", "observer", l.spec.Name,
				"since", l.outside.since)
		}
		l.outside.admitted(time.Now())
	}
}

// refuse makes the observer wait for d, or extends its wait, because the external service refused
// a run with cause. A nil cause means that the run was another node's.
func (a *dispatcherActor) refuse(l *registeredObserver, d time.Duration, cause error) {
	o := &l.outside
	wait, news := o.refuse(time.Now(), d, l.spec.Deadline+a.cfg.Grace)
	o.show(cause)
	if cause == nil {
		return
	}
	if news && wait >= announced {
		a.cfg.Refused(l.spec.Name, wait)
	}
	if !o.logged && o.until.Sub(o.since) >= loggedWait {
		o.logged = true
		a.cfg.Logger.Warn("observer: an outside service refuses runs; all runs wait", "observer",
			l.spec.Name, "since", o.since, "next_attempt_in", wait, "error", o.shown.Load().Error)
	}
}

// Refused records that another node's run was refused by an external service: the observer waits
// for wait, or up to maxStagger longer. It does not block.
func (d *Dispatcher) Refused(observer string, wait time.Duration) {
	d.system.Root.Send(d.port.PID(), &refusal{observer, wait})
}

// heard starts a wait that another node has announced. This node waits a little longer, so that
// the refused node retries first.
func (a *dispatcherActor) heard(m *refusal) {
	d := min(max(m.d, minWait), maxWait)
	for _, l := range a.order {
		if l.spec.Name == m.observer {
			a.refuse(l, d+rand.N(min(d/2, maxStagger)), nil)
		}
	}
}

// putBack queues a refused cell before the others, so that the cells of its batch stay together.
func (a *dispatcherActor) putBack(e *entry) {
	if len(a.draining) > 0 {
		a.forget(e)
		return
	}
	e.obs.frequent.undo(e.cell.Row)
	a.enqueue(e)
	if q := e.obs.queue; len(q) > 0 && q[len(q)-1] == e {
		copy(q[1:], q)
		q[0] = e
	}
}

// waitsOutside returns the observer's wait for an external service. It stays set after the wait
// while trial runs are in progress or about to start.
func (l *registeredObserver) waitsOutside(now time.Time) Outside {
	shown := l.outside.shown.Load()
	if shown == nil ||
		(!shown.Until.After(now) && l.stats.queued.Load()+l.stats.running.Load() == 0) {
		return Outside{}
	}
	return *shown
}
