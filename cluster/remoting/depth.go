package remoting

import (
	"context"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file holds back streams while the receiving actor is behind. Streams wait on their
// own goroutines before each message that they read; the actor's mailbox reports what is
// posted and what is taken, on the senders' goroutines and the actor's. The mutex guards
// all of it.

// maxDepth is how many batches may wait for the receiving actor before no more are read
// from the network. Each stream may add one message of maxEnvelopes.
const maxDepth = 8

// depth counts the batches in the receiving actor's mailbox.
type depth struct {
	mu     sync.Mutex
	count  int
	closed bool
	room   chan struct{} // closed when there is room; nil: nobody waits
}

var _ actor.MailboxMiddleware = (*depth)(nil)

// newDepth returns a depth of 0.
func newDepth() *depth { return &depth{} }

// wait blocks until there is room. It returns the error of ctx if that ends first.
func (d *depth) wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		// There is room. Streams that pass at the same time may exceed it by one message
		// each.
		if d.count < maxDepth || d.closed {
			d.mu.Unlock()
			return nil
		}
		if d.room == nil {
			d.room = make(chan struct{})
		}
		room := d.room
		d.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close lets everybody pass from now on, so that streams can end.
func (d *depth) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.rouse()
}

// rouse wakes all that wait. The caller holds mu.
func (d *depth) rouse() {
	if d.room != nil {
		close(d.room)
		d.room = nil
	}
}

// add counts n more batches, or fewer if n is negative. Other messages, which are the
// library's own, do not count.
func (d *depth) add(message any, n int) {
	if _, ok := message.(*wire.PeerBatch); !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count += n
	// All that wait are woken and look again.
	if d.count < maxDepth {
		d.rouse()
	}
}

// MessagePosted implements actor.MailboxMiddleware.
func (d *depth) MessagePosted(message any) { d.add(message, 1) }

// MessageReceived implements actor.MailboxMiddleware.
func (d *depth) MessageReceived(message any) { d.add(message, -1) }

// MailboxStarted implements actor.MailboxMiddleware.
func (d *depth) MailboxStarted() {}

// MailboxEmpty implements actor.MailboxMiddleware.
func (d *depth) MailboxEmpty() {}
