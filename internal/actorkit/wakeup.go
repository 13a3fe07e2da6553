package actorkit

// Wakeup wakes one goroutine, which receives from it. Its capacity of one is enough: a
// goroutine that has yet to receive sees every change made before.
type Wakeup chan struct{}

// NewWakeup returns a Wakeup.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Wake wakes the goroutine once more. It never blocks.
func (w Wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}
