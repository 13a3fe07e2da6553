package remoting

import (
	"context"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file makes streams wait while the receiving actor is behind. A stream waits on its
// own goroutine before each message that it reads. The actor's mailbox reports each message
// that is posted, on the sender's goroutine, and each that is received, on the actor's. The
// mutex guards all fields.

// maxDepth is the number of waiting batches at which no more are read from the network.
// Each stream may exceed it by one message of maxEnvelopes batches.
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

// close lets all streams pass from now on, so that they can end.
func (d *depth) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.wakeAll()
}

// wakeAll wakes all streams that wait. The caller holds mu.
func (d *depth) wakeAll() {
	if d.room != nil {
		close(d.room)
		d.room = nil
	}
}

// add adds n to the number of batches if the message is one. Other messages are the
// library's own.
func (d *depth) add(message any, n int) {
	if _, ok := message.(*wire.PeerBatch); !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count += n
	if d.count < maxDepth {
		d.wakeAll()
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
