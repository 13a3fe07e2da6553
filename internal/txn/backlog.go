package txn

import (
	"context"
	"sync"
	"time"
)

// How often loaders ask how much work waits for observers: at least backlogGap apart, and
// so that asking takes no more than about a twentieth of the time; again after
// backlogStale, or as soon as the loads since would fill the room that there was.
// backlogBlind is how long nobody asks after a failure.
const (
	backlogGap   = 10 * time.Millisecond
	backlogCost  = 20
	backlogStale = 250 * time.Millisecond
	backlogBlind = time.Second
)

// backlog is what waits for observers that can run, as this client last heard of it: one
// answer for all of its loaders (§2.4: loaders fill the queues that observers empty). It
// has no goroutine: who finds the answer too old asks anew, and the others wait for that
// one, or go on if there was room.
type backlog struct {
	mu       sync.Mutex
	flight   chan struct{} // not nil: somebody asks; closed when that is over
	runnable uint64
	since    uint64    // loads let through since
	soonest  time.Time // not to be asked before
	stale    time.Time // worth asking from then on
}

// AwaitBacklog waits until at most most notifications wait for observers that can run:
// those that are paused, retired, linked by no process, or blocked for ever by their own
// runs do not count, nor what is parked. It counts what it lets through between two
// answers, so queues grow no further than most, plus what is under way in loaders, and
// what one load notifies beyond one. If the cluster cannot tell, it lets through. It
// returns ctx's error when ctx ends first, ErrClosed when closed is closed.
func (o *observers) AwaitBacklog(ctx context.Context, most uint64, closed <-chan struct{}) error {
	for {
		wait, pass := o.backlog.admit(most, time.Now())
		if pass {
			return nil
		}
		if wait.flight == nil && wait.pause == 0 {
			if err := o.askBacklog(ctx); err != nil {
				return err
			}
			continue
		}
		var timer <-chan time.Time
		if wait.pause > 0 {
			timer = time.After(wait.pause)
		}
		select {
		case <-wait.flight: // nil, hence never, when it is the pause that is waited for
		case <-timer:
		case <-closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// backlogWait is what to do instead of passing: wait for who asks, pause, or, if both are
// zero, ask.
type backlogWait struct {
	flight chan struct{}
	pause  time.Duration
}

// admit lets one load pass, or says what to wait for. If it is to ask, the flight is the caller's.
func (b *backlog) admit(most uint64, now time.Time) (w backlogWait, pass bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// else nobody knows of any room: the first ones wait for the first answer
	heard := !b.stale.IsZero()
	room := heard && b.runnable+b.since < most
	switch {
	case room && (now.Before(b.stale) || b.flight != nil):
		b.since++
		return w, true
	case b.flight != nil:
		return backlogWait{flight: b.flight}, false
	case now.Before(b.soonest):
		return backlogWait{pause: b.soonest.Sub(now)}, false
	}
	b.flight = make(chan struct{})
	return w, false
}

// askBacklog asks on behalf of all; the caller owns the flight. Only the end of ctx is an error.
func (o *observers) askBacklog(ctx context.Context) error {
	b, began := &o.backlog, time.Now()
	b.mu.Lock()
	before := b.since
	b.mu.Unlock()
	runnable, err := o.runnable(ctx)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.flight)
	b.flight = nil
	if ctx.Err() != nil { // says nothing about the cluster: the next one asks
		return ctx.Err()
	}
	// the answer may not have those of meanwhile in it
	b.runnable, b.since = runnable, b.since-before
	b.soonest = now.Add(max(backlogGap, min(backlogCost*now.Sub(began), backlogBlind)))
	b.stale = now.Add(backlogStale)
	if err != nil {
		b.stale, b.soonest = now.Add(backlogBlind), now
	}
	if b.stale.Before(b.soonest) {
		b.stale = b.soonest
	}
	return nil
}

// runnable counts the notifications that somebody may run.
func (o *observers) runnable(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.OperationTimeout)
	defer cancel()
	states, err := o.meta.transport.Observers(ctx)
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, state := range states {
		// Runs that never return have taken all that the observer may have: what is
		// queued behind them will not run here, and loaders must not wait for it.
		s := state.GetStatus()
		blocked := s.GetQueued() > 0 && s.GetStuck() > 0 && s.GetStuck() == s.GetRunning()
		if info := state.GetInfo(); state.Linked && !blocked && !info.GetPaused() &&
			!info.GetRetired() {
			n += state.Notifications
		}
	}
	return n, nil
}
