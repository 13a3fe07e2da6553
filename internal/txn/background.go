package txn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// background runs the work that a client does beside its callers'. All of it runs under
// one context, which ends when the client is closed, and is joined by close. Work that
// continues after its caller was answered goes through run, which bounds and counts it,
// and is joined by flush.
//
// There is no pool of goroutines. They spend nearly all their time waiting for answers,
// so bounding their number is enough.
type background struct {
	timeout time.Duration   // of each piece of work, and of flush
	ctx     context.Context // ends with the client
	end     context.CancelFunc
	closed  atomic.Bool
	loops   sync.WaitGroup // of loop

	room  chan struct{} // one place per goroutine of run
	count atomic.Int64  // work begun and not ended

	// A flush waits for the work of its generation, so that it ends even if new work keeps
	// beginning, and for the flush before it.
	flushing sync.Mutex
	mu       sync.Mutex
	now      *sync.WaitGroup // the generation of what begins now
}

// maxBackground limits the secondary commits and rollbacks that run after their callers
// were answered. Beyond it callers do that work themselves.
const maxBackground = 256

func newBackground(cfg *Config) *background {
	b := &background{
		timeout: cfg.OperationTimeout, room: make(chan struct{}, maxBackground),
		now: &sync.WaitGroup{},
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

// loop runs fn on a goroutine of its own. fn returns when its context ends, which is when
// the client is closed.
func (b *background) loop(fn func(context.Context)) {
	b.loops.Go(func() { fn(b.ctx) })
}

// begin counts work that flush has to wait for, until the function returned is called.
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

// run runs fn on a goroutine of its own, or here if too many are running. fn's context
// ends after the timeout, or when the client is closed.
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
		// Backpressure: a caller that makes more work than fits in the background does it
		// itself.
		work()
	}
}

// flush returns when all work begun before it has ended, each after the timeout at the
// latest.
func (b *background) flush() {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	b.mu.Lock()
	generation := b.now
	b.now = &sync.WaitGroup{}
	b.mu.Unlock()
	generation.Wait()
}

// close waits for work under way, cancels what is left after the timeout, and joins all
// goroutines. It returns false if the client has been closed already.
func (b *background) close() bool {
	if b.closed.Swap(true) {
		return false
	}
	// Finish secondaries first: others would have to find and resolve those left behind.
	b.flush()
	b.end()
	b.flush() // what was cut off
	b.loops.Wait()
	return true
}
