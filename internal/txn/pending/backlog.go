package pending

import (
	"context"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/txn/request"
)

// After a query of the backlog, loaders pause for backlogCost times its duration, at least
// backlogGap and at most backlogBlind. They query again after backlogStale, or once the loads
// admitted since then could have filled the remaining room. A failed query is not followed by a
// pause, and counts as an empty backlog for backlogBlind.
const (
	backlogGap   = 10 * time.Millisecond
	backlogCost  = 20
	backlogStale = 250 * time.Millisecond
	backlogBlind = time.Second
)

// backlog caches the number of notifications pending for runnable observers. All loaders of a
// client share one answer (§2.4: loaders fill the queues that observers empty). It has no
// goroutine: a loader that finds the answer stale queries again, and the others wait for it or
// proceed if there was room.
type backlog struct {
	turn chan struct{} // capacity 1: held by the loader that queries

	mu       sync.Mutex
	runnable uint64    // the last answer
	since    uint64    // loads admitted since that answer
	soonest  time.Time // earliest time of the next query
	stale    time.Time // when the answer expires; zero: no answer yet
}

// AwaitBacklog waits until fewer than most notifications are pending for runnable observers. It
// does not count parked notifications, nor those of observers that are paused, retired,
// registered by no process, or blocked by runs that never return. It counts the loads admitted
// between two queries, so the queues exceed most only by the notifications of running loads.
// A failed query counts as an empty backlog. It returns ctx's error if ctx ends first, and
// ErrClosed if closed is closed.
func (o *Observers) AwaitBacklog(ctx context.Context, most uint64, closed <-chan struct{}) error {
	b := &o.backlog
	if b.admit(most, len(b.turn) > 0) {
		return nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-closed:
		return request.ErrClosed
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
			return request.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := o.askBacklog(ctx); err != nil {
			return err
		}
	}
	return nil
}

// admit admits one load if the last answer left room. The answer must not be stale, unless a
// query is running.
func (b *backlog) admit(most uint64, asking bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := !b.stale.IsZero() && b.runnable+b.since < most
	if room = room && (asking || time.Now().Before(b.stale)); room {
		b.since++
	}
	return room
}

// askBacklog queries the backlog for all loaders. The caller holds turn. Its only error is
// ctx's.
func (o *Observers) askBacklog(ctx context.Context) error {
	b, began := &o.backlog, time.Now()
	b.mu.Lock()
	before := b.since
	b.mu.Unlock()
	runnable, err := o.runnable(ctx)
	// The caller canceled, which does not mean that the cluster failed. The next loader
	// queries.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	// The answer may not include the loads admitted since the query was sent.
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

// runnable counts the notifications pending for runnable observers.
func (o *Observers) runnable(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	states, err := o.transport.Observers(ctx)
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
