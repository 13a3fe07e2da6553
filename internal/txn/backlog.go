package txn

import (
	"context"
	"sync"
	"time"
)

// Loaders ask how much work waits for observers at least backlogGap apart, and so that
// asking takes at most about a twentieth of the time. They ask again after backlogStale,
// or once the loads since then would fill the room there was. After a failure nobody asks
// for backlogBlind.
const (
	backlogGap   = 10 * time.Millisecond
	backlogCost  = 20
	backlogStale = 250 * time.Millisecond
	backlogBlind = time.Second
)

// backlog is how many notifications wait for observers that can run, as this client last
// heard. All of its loaders share one answer (§2.4: loaders fill the queues that observers
// empty). It has no goroutine: a loader that finds the answer too old asks again, and the
// others wait for it, or go on if there was room.
type backlog struct {
	mu       sync.Mutex
	flight   chan struct{} // of the question under way, closed at its end; nil: none is
	runnable uint64        // the last answer
	since    uint64        // loads let through since that answer
	soonest  time.Time     // when the next question may be asked
	stale    time.Time     // when the answer is too old; zero: there was none
}

// AwaitBacklog waits until at most most notifications wait for observers that can run:
// those of observers that are paused, retired, linked by no process, or blocked by runs that
// never return do not count, nor do parked ones. It counts the loads that it lets through
// between two answers, so the queues exceed most only by what loads under way notify. If
// the cluster cannot tell, it does not wait. It returns ctx's error if ctx ends first, and
// ErrClosed if closed is closed.
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

// backlogWait is what a load that may not pass has to do: wait for flight to end, pause,
// or, if both are zero, ask.
type backlogWait struct {
	flight chan struct{}
	pause  time.Duration
}

// admit lets one load pass or says what it has to do. A caller that has to ask owns the
// flight, and ends it in askBacklog.
func (b *backlog) admit(most uint64, now time.Time) (w backlogWait, pass bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Before the first answer no room is known.
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

// askBacklog asks on behalf of all loaders and ends the flight, which the caller owns. Its only
// error is ctx's.
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
	// This loader gave up, which says nothing about the cluster. The next one asks.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The loads let through since the question may not be in the answer yet.
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
		// Runs that never return take up all of the observer's concurrency. What is
		// queued behind them will not run, so loaders must not wait for it.
		s := state.GetStatus()
		blocked := s.GetQueued() > 0 && s.GetStuck() > 0 && s.GetStuck() == s.GetRunning()
		if info := state.GetInfo(); state.Linked && !blocked && !info.GetPaused() &&
			!info.GetRetired() {
			n += state.Notifications
		}
	}
	return n, nil
}
