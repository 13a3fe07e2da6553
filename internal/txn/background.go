package txn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// background is what a client does beside its callers' work, and until when: all of it
// goes on under one context, which ends when the client is closed, and is joined by close.
// run is for what goes on after callers were answered: bounded, counted, joined by flush.
//
// The goroutines are not a pool of fixed size: nearly all of their time is spent waiting
// for answers, so what has to be bounded is how many there are, and idle ones cost
// nothing if there are none.
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

// generation is what began between two calls of flush, so that a wait ends although more
// and more begins after it.
type generation struct {
	n      int
	sealed bool
	idle   chan struct{} // closed when it is sealed and n is 0
}

func newBackground(cfg *Config) *background {
	b := &background{
		timeout: cfg.OperationTimeout, room: make(chan struct{}, cfg.Background),
		now: newGeneration(),
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

func newGeneration() *generation { return &generation{idle: make(chan struct{})} }

// loop runs fn on a goroutine of its own until the client is closed: fn returns when its
// context ends.
func (b *background) loop(fn func(context.Context)) {
	b.loops.Go(func() { fn(b.ctx) })
}

// begin counts something that flush has to wait for, until done is called with what begin
// returned.
func (b *background) begin() *generation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.n++
	return b.now
}

// done ends what begin has counted.
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
	// It is counted before it starts, so that a flush that begins now can't miss it.
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
		// Backpressure: whoever makes more of this work than can be done in the background does it.
		work()
	}
}

// flush returns when all that had begun before has ended, or after the timeout.
func (b *background) flush() {
	// Under steady load n may never be seen at zero; the n of a generation that nothing
	// joins any more will.
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

// close waits for what goes on, cuts off what is left after the timeout, and joins all
// goroutines. It returns false if the client has been closed already.
func (b *background) close() bool {
	if b.closed.Swap(true) {
		return false
	}
	// Secondaries first: what is left of them would have to be found and resolved by others.
	b.flush()
	b.end()
	b.flush() // what was cut off
	b.loops.Wait()
	return true
}

// running is how many have begun and not ended.
func (b *background) running() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.now.n
	for _, g := range b.old {
		n += g.n
	}
	return n
}
