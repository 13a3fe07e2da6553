package txn

import (
	"context"
	"slices"
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

	room chan struct{} // one place per goroutine of run
	mu   sync.Mutex
	now  *generation   // what begins now belongs to it
	old  []*generation // sealed and not finished yet
}

// maxBackground limits the secondary commits and rollbacks that run after their callers
// were answered. Beyond it callers do that work themselves.
const maxBackground = 256

// generation counts the work begun between two calls of flush, so that a flush ends even
// if new work keeps beginning.
type generation struct {
	n      int
	sealed bool
	idle   chan struct{} // closed when it is sealed and n is 0
}

func newBackground(cfg *Config) *background {
	b := &background{
		timeout: cfg.OperationTimeout, room: make(chan struct{}, maxBackground),
		now: newGeneration(),
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

func newGeneration() *generation { return &generation{idle: make(chan struct{})} }

// loop runs fn on a goroutine of its own. fn returns when its context ends, which is when
// the client is closed.
func (b *background) loop(fn func(context.Context)) {
	b.loops.Go(func() { fn(b.ctx) })
}

// begin counts work that flush has to wait for, until done is called with the generation
// returned.
func (b *background) begin() *generation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.n++
	return b.now
}

// done ends work counted by begin.
func (b *background) done(g *generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.n--; g.n == 0 && g.sealed {
		close(g.idle)
		b.old = slices.DeleteFunc(b.old, func(o *generation) bool { return o == g })
	}
}

// run runs fn on a goroutine of its own, or here if too many are running. fn's context
// ends after the timeout, or when the client is closed.
func (b *background) run(fn func(context.Context)) {
	// Count it before it starts, so that a concurrent flush can't miss it.
	g := b.begin()
	work := func() {
		defer b.done(g)
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

// flush returns when all work begun before it has ended, or after the timeout.
func (b *background) flush() {
	// Under steady load the current count may never reach zero; that of a closed
	// generation will.
	b.mu.Lock()
	if b.now.n > 0 {
		b.now.sealed = true
		b.old = append(b.old, b.now)
		b.now = newGeneration()
	}
	waiting := slices.Clone(b.old)
	b.mu.Unlock()
	timer := time.NewTimer(b.timeout)
	defer timer.Stop()
	for _, g := range waiting {
		select {
		case <-g.idle:
		case <-timer.C:
			return
		}
	}
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

// running returns how much work has begun and not ended.
func (b *background) running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.now.n
	for _, g := range b.old {
		n += g.n
	}
	return n
}
