// Package background runs and joins the goroutines that outlive the calls of a client.
package background

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Group runs a client's background goroutines. They share one context, which is canceled when the
// client is closed, and Close joins them. Work that outlives the call that caused it goes through
// Run, which bounds and counts it; Flush waits for it. It is safe for concurrent use.
//
// There is no pool of goroutines. They spend nearly all their time waiting for answers, so a
// bound on their number is enough.
type Group struct {
	timeout time.Duration   // of each piece of work, and of Flush
	ctx     context.Context // ends with the client
	end     context.CancelFunc
	closed  atomic.Bool
	loops   sync.WaitGroup // of Loop

	room  chan struct{} // one place per goroutine of Run
	count atomic.Int64  // work begun and not ended

	// A Flush waits for the work of its generation and for the preceding one, so it returns
	// even if new work keeps starting.
	flushing sync.Mutex
	mu       sync.Mutex
	now      *sync.WaitGroup // the current generation
}

// maxBackground is the maximum number of goroutines of Run (secondary commits, rollbacks,
// heartbeats). Beyond it callers do their work themselves.
const maxBackground = 256

// New returns a group that cancels the context of each piece of Run's work after timeout.
func New(timeout time.Duration) *Group {
	b := &Group{
		timeout: timeout, room: make(chan struct{}, maxBackground),
		now: &sync.WaitGroup{},
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

// Context returns the context that all goroutines share.
func (b *Group) Context() context.Context { return b.ctx }

// Closed reports whether Close was called.
func (b *Group) Closed() bool { return b.closed.Load() }

// Running returns the number of pieces of work that have begun and not ended.
func (b *Group) Running() int64 { return b.count.Load() }

// Cancel cancels running and later work, and the loops.
func (b *Group) Cancel() { b.end() }

// Loop runs fn on its own goroutine. fn must return when its context is canceled, by Close or
// Cancel.
func (b *Group) Loop(fn func(context.Context)) {
	b.loops.Go(func() { fn(b.ctx) })
}

// Begin registers work that Flush waits for until done is called.
func (b *Group) Begin() (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	generation := b.now
	generation.Add(1)
	b.count.Add(1)
	return func() {
		b.count.Add(-1)
		generation.Done()
	}
}

// Run runs fn on its own goroutine, or on the caller's if maxBackground are running. fn's
// context is canceled after the timeout or when the client is closed.
func (b *Group) Run(fn func(context.Context)) {
	// Count it before it starts, so that a concurrent Flush can't miss it.
	done := b.Begin()
	work := func() {
		defer done()
		ctx, cancel := context.WithTimeout(b.ctx, b.timeout)
		defer cancel()
		fn(ctx)
	}
	select {
	case b.room <- struct{}{}:
		go func() {
			defer func() { <-b.room }()
			work()
		}()
	default:
		// Backpressure: beyond the bound the caller does the work itself.
		work()
	}
}

// Flush waits for all work begun before it. Each piece of work ends after at most the timeout.
func (b *Group) Flush() {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	b.mu.Lock()
	generation := b.now
	b.now = &sync.WaitGroup{}
	b.mu.Unlock()
	generation.Wait()
}

// Close waits for running work for at most the timeout, cancels what has not ended by then, and
// joins all goroutines.
// It returns false if the client was already closed.
func (b *Group) Close() bool {
	if b.closed.Swap(true) {
		return false
	}
	// Finish secondaries first: other clients would have to resolve the locks left behind.
	b.Flush()
	b.end()
	b.Flush() // wait for the canceled work
	b.loops.Wait()
	return true
}
