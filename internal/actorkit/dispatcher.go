package actorkit

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Dispatcher runs the turns of actors on goroutines that it keeps. The library's own
// begins a new goroutine each time a mailbox was empty, with a small stack, and an actor
// whose turns are deep grows it every time.
//
// A kept goroutine is handed the next mailbox that wakes up, the one that was idle last
// first: its stack is in the processor's cache. When all are at work, another is begun:
// no mailbox ever waits for another's turn.
type Dispatcher struct {
	keep int
	done sync.WaitGroup

	mu     sync.Mutex
	idle   []*turner
	closed bool
}

var _ actor.Dispatcher = (*Dispatcher)(nil)

// turner is one kept goroutine.
type turner struct{ next chan func() }

// NewDispatcher returns a Dispatcher that keeps up to so many idle goroutines. Close ends them.
func NewDispatcher(keep int) *Dispatcher { return &Dispatcher{keep: keep} }

// turnsBeforeYield is how many messages an actor handles before it lets other goroutines
// run; as the library's own.
const turnsBeforeYield = 300

// Throughput implements actor.Dispatcher.
func (d *Dispatcher) Throughput() int { return turnsBeforeYield }

// Schedule implements actor.Dispatcher. It never blocks.
func (d *Dispatcher) Schedule(turns func()) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		t := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		t.next <- turns // it was idle, and is handed one thing only: there is room
		return
	}
	t := &turner{next: make(chan func(), 1)}
	d.done.Go(func() { d.run(t, turns) })
	d.mu.Unlock()
}

// run carries out what the goroutine is handed until it is not kept any more.
func (d *Dispatcher) run(t *turner, turns func()) {
	for turns != nil {
		turns()
		if !d.rest(t) {
			return
		}
		turns = <-t.next
	}
}

// rest puts the goroutine with the idle ones; false if there are enough.
func (d *Dispatcher) rest(t *turner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) >= d.keep {
		return false
	}
	d.idle = append(d.idle, t)
	return true
}

// Close ends the goroutines that are kept, and waits for those at work. Call it after the
// actors have stopped; turns that are scheduled later run on goroutines of their own.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	for _, t := range d.idle {
		t.next <- nil
	}
	d.idle = nil
	d.mu.Unlock()
	d.done.Wait()
}

// On is the option that has an actor's turns run by d; nil: by the library's dispatcher.
func On(d *Dispatcher) actor.PropsOption {
	if d == nil {
		return func(*actor.Props) {}
	}
	return actor.WithDispatcher(d)
}
