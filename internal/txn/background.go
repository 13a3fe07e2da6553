package txn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// background runs a client's background goroutines. They share one context, which is canceled
// when the client is closed, and close joins them. Work that outlives the call that caused it
// goes through run, which bounds and counts it; flush waits for it.
//
// There is no pool of goroutines. They spend nearly all their time waiting for answers, so a
// bound on their number is enough.
type background struct {
	timeout time.Duration   // of each piece of work, and of flush
	ctx     context.Context // ends with the client
	end     context.CancelFunc
	closed  atomic.Bool
	loops   sync.WaitGroup // of loop

	room  chan struct{} // one place per goroutine of run
	count atomic.Int64  // work begun and not ended

	// A flush waits for the work of its generation and for the preceding flush, so it returns
	// even if new work keeps starting.
	flushing sync.Mutex
	mu       sync.Mutex
	now      *sync.WaitGroup // the current generation
}

// maxBackground is the maximum number of secondary commits and rollbacks that run in the
// background. Beyond it callers do that work themselves.
const maxBackground = 256

func newBackground(cfg *Config) *background {
	b := &background{
		timeout: cfg.OperationTimeout, room: make(chan struct{}, maxBackground),
		now: &sync.WaitGroup{},
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

// loop runs fn on its own goroutine. fn must return when its context is canceled, which close
// does.
func (b *background) loop(fn func(context.Context)) {
	b.loops.Go(func() { fn(b.ctx) })
}

// begin registers work that flush waits for until done is called.
func (b *background) begin() (done func()) {
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

// run runs fn on its own goroutine, or on the caller's if maxBackground are running. fn's
// context is canceled after the timeout or when the client is closed.
func (b *background) run(fn func(context.Context)) {
	// Count it before it starts, so that a concurrent flush can't miss it.
	done := b.begin()
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

// flush waits for all work begun before it. Each piece of work ends after at most the timeout.
func (b *background) flush() {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	b.mu.Lock()
	generation := b.now
	b.now = &sync.WaitGroup{}
	b.mu.Unlock()
	generation.Wait()
}

// close waits for running work, cancels the rest after the timeout, and joins all goroutines.
// It returns false if the client was already closed.
func (b *background) close() bool {
	if b.closed.Swap(true) {
		return false
	}
	// Finish secondaries first: other clients would have to resolve the locks left behind.
	b.flush()
	b.end()
	b.flush() // wait for the canceled work
	b.loops.Wait()
	return true
}
