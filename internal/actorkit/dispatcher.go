package actorkit

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Dispatcher runs actors on pooled goroutines. Protoactor's default dispatcher starts a
// goroutine whenever a mailbox has become non-empty. Its stack is small, and an actor with
// deep calls must grow it every time.
//
// A mailbox that becomes non-empty gets the goroutine that became idle last, whose stack is
// most likely in the processor's cache. If none is idle another is started, so that no
// mailbox waits for another's messages.
type Dispatcher struct {
	keep int
	done sync.WaitGroup

	mu     sync.Mutex
	idle   []*worker
	closed bool
}

var _ actor.Dispatcher = (*Dispatcher)(nil)

// worker is one kept goroutine.
type worker struct{ next chan func() }

// NewDispatcher returns a Dispatcher that keeps up to keep idle goroutines. Close ends them.
func NewDispatcher(keep int) *Dispatcher { return &Dispatcher{keep: keep} }

// turnsBeforeYield is the number of messages an actor handles before it yields to other
// goroutines. It is the default dispatcher's value.
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
		t.next <- turns // does not block: the worker is idle and its channel empty
		return
	}
	t := &worker{next: make(chan func(), 1)}
	d.done.Go(func() { d.run(t, turns) })
	d.mu.Unlock()
}

// run executes the tasks handed to the worker until the worker is released.
func (d *Dispatcher) run(t *worker, turns func()) {
	for turns != nil {
		turns()
		if !d.park(t) {
			return
		}
		turns = <-t.next
	}
}

// park adds the worker to the idle ones. It returns false if d.keep are idle, or d is closed.
func (d *Dispatcher) park(t *worker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) >= d.keep {
		return false
	}
	d.idle = append(d.idle, t)
	return true
}

// Close ends the idle goroutines and waits for the busy ones. Call it after the actors have
// stopped; what is scheduled later runs on goroutines that are not kept.
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

// On returns the option that makes d run an actor. If d is nil the default dispatcher does.
func On(d *Dispatcher) actor.PropsOption {
	if d == nil {
		return func(*actor.Props) {}
	}
	return actor.WithDispatcher(d)
}
