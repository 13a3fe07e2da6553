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
	turn chan struct{} // capacity 1: held by the loader that asks

	mu       sync.Mutex
	runnable uint64    // the last answer
	since    uint64    // loads let through since that answer
	soonest  time.Time // when the next question may be asked
	stale    time.Time // when the answer is too old; zero: there was none
}

// AwaitBacklog waits until at most most notifications wait for observers that can run:
// those of observers that are paused, retired, linked by no process, or blocked by runs that
// never return do not count, nor do parked ones. It counts the loads that it lets through
// between two answers, so the queues exceed most only by what loads under way notify. If
// the cluster cannot tell, it does not wait. It returns ctx's error if ctx ends first, and
// ErrClosed if closed is closed.
func (o *observers) AwaitBacklog(ctx context.Context, most uint64, closed <-chan struct{}) error {
	b := &o.backlog
	if b.admit(most, len(b.turn) > 0) {
		return nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	for !b.admit(most, false) {
		b.mu.Lock()
		pause := time.Until(b.soonest)
		b.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := o.askBacklog(ctx); err != nil {
			return err
		}
	}
	return nil
}

// admit lets one load through if there is room by the last answer and that is not too old,
// which does not matter while somebody asks.
func (b *backlog) admit(most uint64, asking bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := !b.stale.IsZero() && b.runnable+b.since < most
	if room = room && (asking || time.Now().Before(b.stale)); room {
		b.since++
	}
	return room
}

// askBacklog asks on behalf of all loaders. The caller holds turn. Its only error is ctx's.
func (o *observers) askBacklog(ctx context.Context) error {
	b, began := &o.backlog, time.Now()
	b.mu.Lock()
	before := b.since
	b.mu.Unlock()
	runnable, err := o.runnable(ctx)
	// This loader gave up, which says nothing about the cluster. The next one asks.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
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
