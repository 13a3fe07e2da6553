package peer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// State of one request. The outbox's actor advances it; the answer, the deadline's timer, the
// caller's context or the end of the node settles it, each on its own goroutine. The first to
// settle it, by an atomic swap, calls the callback; the others do nothing.

// The states of a request. They only go up.
const (
	queued  int32 = iota // in the outbox
	batched              // in a batch in the link
	sent                 // the link has reported the batch sent
	settled              // the callback has been called or is being called
)

// waiting is an unanswered request.
type waiting struct {
	box      *outbox
	id       uint64
	body     *wire.PeerRequest // the caller's, read only
	bytes    int
	deadline time.Time
	then     func(*wire.PeerResponse, error)
	timer    *time.Timer // fails the request at its deadline
	state    atomic.Int32
	to       uint64 // the node's oldest incarnation that can receive it
}

// message returns the message to send: a copy of the caller's request with its number and
// remaining time.
func (w *waiting) message(now time.Time) *wire.PeerRequest {
	left := max(1, w.deadline.Sub(now).Milliseconds())
	return &wire.PeerRequest{
		Id: w.id, TimeoutMs: uint32(min(left, maxTimeout.Milliseconds())), Body: w.body.GetBody(),
	}
}

// advance moves the request from one state to the next. It returns false if it was in
// another state.
func (w *waiting) advance(from, to int32) bool { return w.state.CompareAndSwap(from, to) }

// settle ends the request with an answer or an error and calls the callback, unless the
// request was settled before.
func (w *waiting) settle(resp *wire.PeerResponse, err error) {
	if w.state.Swap(settled) != settled {
		w.finish(resp, err)
	}
}

// fail settles the request without an answer. If it was certainly not sent, the error wraps
// txn.ErrNotSent.
func (w *waiting) fail(cause error) {
	switch state := w.state.Swap(settled); {
	case state == settled:
	case state == queued:
		w.finish(nil, fmt.Errorf("%w: %w", txn.ErrNotSent, cause))
	default:
		w.finish(nil, cause)
	}
}

// expire fails the request at its deadline or when its caller's context ends.
func (w *waiting) expire(cause error) {
	w.fail(fmt.Errorf("peer: wait for node %d: %w", w.box.node, cause))
}

// timeout fails the request with context.DeadlineExceeded. The timer calls it.
func (w *waiting) timeout() { w.expire(context.DeadlineExceeded) }

// finish removes the settled request from the outbox and calls its callback.
func (w *waiting) finish(resp *wire.PeerResponse, err error) {
	w.box.forget(w) // takes the mutex under which the timer was set
	w.timer.Stop()
	w.then(resp, err)
}
