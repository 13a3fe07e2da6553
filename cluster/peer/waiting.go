package peer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Where a request is. It only goes up.
const (
	atHome  int32 = iota // in the outbox
	batched              // in a batch that the link has
	onWay                // the link has said that it is on its way
	settled              // its caller knows
)

// waiting is a request without an answer.
type waiting struct {
	box      *outbox
	id       uint64
	body     *wire.PeerRequest // the caller's, read only
	bytes    int
	deadline time.Time
	then     func(*wire.PeerResponse, error)
	timer    *time.Timer // ends it at the deadline
	state    atomic.Int32
	to       uint64 // the node's oldest incarnation that can get it
}

// message is what is sent: the caller's request with our number and the time that is left.
func (w *waiting) message(now time.Time) *wire.PeerRequest {
	left := max(1, w.deadline.Sub(now).Milliseconds())
	return &wire.PeerRequest{
		Id: w.id, TimeoutMs: uint32(min(left, maxTimeout.Milliseconds())), Body: w.body.GetBody(),
	}
}

// advance moves it on from one place to the next; false if it was elsewhere.
func (w *waiting) advance(from, to int32) bool { return w.state.CompareAndSwap(from, to) }

// settle tells the caller, if nobody has. Whoever calls it has taken care of the outbox's
// figures, or calls box.forget.
func (w *waiting) settle(resp *wire.PeerResponse, err error) {
	if w.state.Swap(settled) != settled {
		w.finish(resp, err)
	}
}

// fail settles it without an answer; whether it was sent decides what the caller is told.
func (w *waiting) fail(cause error) {
	switch state := w.state.Swap(settled); {
	case state == settled:
	case state == atHome:
		w.finish(nil, fmt.Errorf("%w: %w", txn.ErrNotSent, cause))
	default:
		w.finish(nil, cause)
	}
}

// expire fails it at the end of its time, or of its caller's patience.
func (w *waiting) expire(cause error) {
	w.fail(fmt.Errorf("peer: node %d: %w", w.box.node, cause))
}

// timeout is expire for the timer.
func (w *waiting) timeout() { w.expire(context.DeadlineExceeded) }

func (w *waiting) finish(resp *wire.PeerResponse, err error) {
	w.box.forget(w) // takes the mutex under which the timer was set
	w.timer.Stop()
	w.then(resp, err)
}
