package txn

import (
	"slices"
	"sync"
	"time"
)

// background runs what goes on after callers were answered: bounded, counted, joined by wait.
//
// The goroutines are not a pool of fixed size: nearly all of their time is spent waiting
// for answers, so what has to be bounded is how many there are, and idle ones cost
// nothing if there are none.
type background struct {
	room chan struct{} // one place per goroutine of run
	mu   sync.Mutex
	now  *generation   // what begins now belongs to it
	old  []*generation // sealed and not finished yet
}

// generation is what began between two calls of wait, so that a wait ends although more
// and more begins after it.
type generation struct {
	n      int
	sealed bool
	idle   chan struct{} // closed when it is sealed and n is 0
}

func (b *background) init(limit int) {
	b.room, b.now = make(chan struct{}, limit), newGeneration()
}

func newGeneration() *generation { return &generation{idle: make(chan struct{})} }

// begin counts something that wait has to wait for, until done is called with what begin returned.
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

// run runs fn on a goroutine of its own, or here if too many are running.
func (b *background) run(fn func()) {
	// It is counted before it starts, so that a wait that begins now can't miss it.
	g := b.begin()
	select {
	case b.room <- struct{}{}:
		go func() {
			defer b.done(g)
			defer func() { <-b.room }()
			fn()
		}()
	default:
		// Backpressure: whoever makes more of this work than can be done in the background does it.
		defer b.done(g)
		fn()
	}
}

// wait returns when all that had begun before has ended, or after timeout.
func (b *background) wait(timeout time.Duration) {
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
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, g := range waiting {
		select {
		case <-g.idle:
		case <-timer.C:
			return
		}
	}
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
