package observer

import (
	"container/heap"
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// submit is one call of Submit.
type submit = actorkit.Call[[]notify.Dirty, []notify.Admission]

// Messages of the dispatcher other than submit.
type (
	// finished is sent by the invocation actor when its batch, usually of one run, has ended.
	finished struct{ batch *batch }
	// decided is sent, before finished, by a batch that has committed and waits for the locks
	// that its commit resolves in the background. run is its first run.
	decided struct{ run *run }
	// overdue is sent by the run's timer when the function has not returned Grace after the
	// run's deadline.
	overdue struct{ run *run }
	// reported is sent by an invocation actor that has recorded the failure of an overdue run.
	reported struct {
		run *run
		out outcome
	}
	// wake is sent by the timer when a backoff or a debounce ends, or when an observer that waits
	// for an external service may run.
	wake struct{}
	// drain is sent by Stop: no further run starts, and idle is closed when none is running.
	drain struct{ idle chan struct{} }
)

// dispatcherActor decides which runs start when. Its fields are confined to the actor's
// goroutine, except byTarget, loops and effects.
type dispatcherActor struct {
	cfg     Config
	base    context.Context
	stopped chan struct{}
	props   *actor.Props // of an invocation actor

	byTarget   atomic.Pointer[map[notify.Target]*registeredObserver] // the map is immutable
	order      []*registeredObserver
	next       int                  // index in the slice order of the observer scheduled next
	entries    map[mvcc.Cell]*entry // by notify cell
	runs       map[*run]*entry
	waiting    waitHeap // entries in backoff or debounce
	debouncing int      // entries of waiting that are in debounce
	batches    int      // unfinished batches
	running    int      // batches that hold a slot
	stuck      int
	loops      *loops
	effects    *effectsBook
	opens      time.Time // when the first observer paused by an external service may run again; or zero
	armed      time.Time // when the timer fires; zero if unset
	timer      *time.Timer
	draining   []chan struct{} // while it is not empty no run starts
	ended      bool
}

func newDispatcherActor(ctx context.Context, cfg Config, stopped chan struct{}) *dispatcherActor {
	a := &dispatcherActor{
		cfg: cfg, base: cfg.Context(ctx), stopped: stopped,
		props:   actor.PropsFromProducer(func() actor.Actor { return invocation{} }),
		entries: make(map[mvcc.Cell]*entry), runs: make(map[*run]*entry), loops: newLoops(cfg.LoopRuns),
		effects: newEffectsBook(),
	}
	for _, o := range cfg.Observers {
		l := &registeredObserver{spec: o.Spec, logger: cfg.Logger, limit: o.Spec.Concurrency,
			versions: cfg.Versions, parking: make(chan struct{}, parkingAtOnce)}
		l.spec.MaxConflicts = actorkit.Positive(l.spec.MaxConflicts, percolator.DefaultMaxConflicts)
		l.link.Store(&o.Link)
		l.inForce.Store(int64(min(l.limit, cfg.Workers)))
		l.outside.reset()
		a.order = append(a.order, l)
	}
	a.retarget()
	return a
}

// Receive handles one message and then starts the runs that may start.
func (a *dispatcherActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *submit:
		a.submit(m)
	case *finished:
		a.finish(m.batch)
	case *decided:
		a.takeBack(m.run)
	case *overdue:
		a.abandon(c, m.run)
	case *reported:
		a.reported(m.run, m.out)
	case *wake:
		a.wake()
	case *refusal:
		a.heard(m)
	case *onDispatcher:
		m.run(a)
	case *drain:
		a.drain(m.idle)
	case *actor.Stopping:
		a.stop()
		return
	case *actor.Stopped:
		close(a.stopped)
		return
	default:
		return
	}
	a.schedule(c)
}

// submit returns an admission for each cell.
func (a *dispatcherActor) submit(m *submit) {
	out := make([]notify.Admission, len(m.Req))
	for i := range m.Req {
		if i >= a.cfg.Queue {
			out[i] = notify.Full
			continue
		}
		out[i] = a.admit(&m.Req[i])
	}
	m.Reply(out)
}

func (a *dispatcherActor) admit(d *notify.Dirty) notify.Admission {
	if len(a.draining) > 0 || a.ended {
		return notify.Stopped
	}
	obs, ok := (*a.byTarget.Load())[notify.TargetOf(d.Cell)]
	if !ok {
		return notify.Unlinked
	}
	if e, ok := a.entries[d.Cell]; ok {
		return a.collapse(e, d)
	}
	e := &entry{
		obs: obs, cell: d.Cell, known: d.Notify, done: d.Done, waits: d.Waits, backlog: d.Backlog,
		since: time.Now(),
	}
	e.stale = e.mayBeParked()
	rests := e.remainingDebounce() > 0
	switch {
	case obs.disabled.Load():
		return notify.Paused
	case !d.Held:
		return notify.Refused
	case rests && obs.debouncing >= a.cfg.Queue:
		return notify.Deferred
	case rests:
	case len(obs.queue)+len(obs.suspects) >= a.cfg.Queue, d.Notify == nil &&
		len(obs.queue) >= max(hintsAhead, 4*obs.spec.Batch, 4*min(obs.limit, a.cfg.Workers)):
		return notify.Full
	}
	a.entries[d.Cell] = e
	a.place(e)
	return notify.Accepted
}

// collapse adds a notification to the existing entry of its cell. While the entry is in backoff
// after a failure, a hint, or the change that has failed, is deferred instead.
func (a *dispatcherActor) collapse(e *entry, d *notify.Dirty) notify.Admission {
	e.stale = e.stale || e.mayBeParked()
	switch {
	case e.state == debouncing:
		a.postpone(e, d.Notify)
	case e.state == waiting && e.failedTS != 0:
		if d.Notify == nil || d.Notify.TS <= e.failedTS {
			return notify.Deferred
		}
		// A newer change has its own failure count and does not wait for the older one's backoff.
		a.resume(e)
		e.failedTS, e.attempts, e.since = 0, 0, time.Now()
		e.note(d.Notify)
		a.place(e)
	default:
		e.note(d.Notify)
	}
	e.obs.stats.collapsed.Add(1)
	return notify.Collapsed
}

// enqueue queues the entry for a slot, or drops it if its observer may not run.
func (a *dispatcherActor) enqueue(e *entry) {
	if e.obs.disabled.Load() {
		a.forget(e)
		return
	}
	e.obs.rank(e)
	e.state = queued
	if e.obs.spec.Batch > 1 {
		e.tablet = a.cfg.Client.TabletOf(e.cell)
	}
	if isUnfinished(e.known) {
		e.obs.suspects = append(e.obs.suspects, e)
	} else {
		e.obs.queue = append(e.obs.queue, e)
	}
	e.obs.stats.queued.Add(1)
}

// delay puts the entry into backoff for d. Beyond the limit of waiting entries, or while no run may
// start, it drops the entry; its cell stays dirty and a later scan finds it.
func (a *dispatcherActor) delay(e *entry, d time.Duration) {
	if len(a.draining) > 0 || e.obs.disabled.Load() || len(a.waiting)-a.debouncing >= a.cfg.Queue {
		a.forget(e)
		return
	}
	e.state, e.due = waiting, time.Now().Add(d)
	heap.Push(&a.waiting, e)
	e.obs.stats.waiting.Add(1)
}

// resume ends the entry's backoff or debounce.
func (a *dispatcherActor) resume(e *entry) {
	heap.Remove(&a.waiting, e.index)
	e.obs.stats.waiting.Add(-1)
	if e.state == debouncing {
		e.obs.debouncing--
		a.debouncing--
	}
}

// wake queues the entries whose backoff or debounce has ended.
func (a *dispatcherActor) wake() {
	a.armed = time.Time{}
	now := time.Now()
	for len(a.waiting) > 0 && !a.waiting[0].due.After(now) {
		e := a.waiting[0]
		a.resume(e)
		a.enqueue(e)
	}
}

// forget drops the entry and releases its advisory lock.
func (a *dispatcherActor) forget(e *entry) {
	delete(a.entries, e.cell)
	e.settled()
	e.release()
}
