package remoting

import (
	"context"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/wire"
)

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

func newDepth() *depth { return &depth{} }

// wait returns when there is room, or the context has ended.
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

// close lets everybody pass.
func (d *depth) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.rouse()
}

func (d *depth) rouse() {
	if d.room != nil {
		close(d.room)
		d.room = nil
	}
}

func (d *depth) add(message any, n int) {
	if _, ok := message.(*wire.PeerBatch); !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count += n
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
