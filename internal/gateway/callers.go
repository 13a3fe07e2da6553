package gateway

import (
	"context"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Callers: each identity has a client of its own, whose operations are checked as those of a remote one.
// Clients that share an identity share its caches, its commits' background work and its bounds.

const (
	// maxCallers is the maximum number of identities with a client.
	maxCallers = 256
	// maxCalls is the maximum number of concurrent calls and streams, maxOwnCalls that of one identity.
	maxCalls, maxOwnCalls = 1024, 256
	// callerKept is the time after which an unused client is closed, once an identity without a
	// client calls.
	callerKept = 5 * time.Minute
)

// callers are the clients of a node, by identity.
type callers struct {
	open func(rpc.Caller) *txn.Client

	mu     sync.Mutex
	byID   map[rpc.Identity]*caller
	calls  int
	closed bool
	ending sync.WaitGroup // clients that are being closed
}

// caller is an identity with its client. The mutex of callers guards its mutable fields.
type caller struct {
	all      *callers
	identity rpc.Identity
	db       *percolator.DB
	client   *txn.Client

	uses  int // calls and sessions
	calls int
	used  time.Time // the end of the last use
}

func newCallers(open func(rpc.Caller) *txn.Client) *callers {
	return &callers{open: open, byID: map[rpc.Identity]*caller{}}
}

// call counts a call of the caller, and returns it with the function that ends the call.
func (all *callers) call(who rpc.Caller) (*caller, func(), error) {
	id := who.Identity()
	all.mu.Lock()
	defer all.mu.Unlock()
	c := all.byID[id]
	switch {
	case all.closed:
		return nil, nil, percolator.ErrClosed
	case all.calls >= maxCalls:
		return nil, nil, txn.Errorf("%w: this node's gateway already serves %d calls", percolator.ErrOverloaded, maxCalls)
	case c != nil && c.calls >= maxOwnCalls:
		return nil, nil, txn.Errorf("%w: this node's gateway already serves %d calls of this caller", percolator.ErrOverloaded, maxOwnCalls)
	case c == nil && !all.room():
		return nil, nil, txn.Errorf("%w: this node's gateway already serves %d clients", percolator.ErrOverloaded, maxCallers)
	}
	if c == nil {
		client := all.open(who)
		c = &caller{all: all, identity: id, client: client, db: handle.NewDB(client)}
		all.byID[id] = c
	}
	all.calls++
	c.calls++
	c.uses++
	return c, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.calls--
		c.calls--
		c.unused()
	}, nil
}

// room ends the clients that have not been used for callerKept. If there are still maxCallers, it
// ends the one that has not been used for the longest time. It reports whether there is room for
// another; there is none if all are in use. The caller holds mu.
func (all *callers) room() bool {
	var oldest *caller
	for _, c := range all.byID {
		if c.uses > 0 {
			continue
		}
		if time.Since(c.used) > callerKept {
			all.end(c)
		} else if oldest == nil || c.used.Before(oldest.used) {
			oldest = c
		}
	}
	if len(all.byID) >= maxCallers && oldest != nil {
		all.end(oldest)
	}
	return len(all.byID) < maxCallers
}

// end closes an unused client in the background: it may have to finish commits. The caller holds mu.
func (all *callers) end(c *caller) {
	delete(all.byID, c.identity)
	all.ending.Go(func() { _ = c.client.Close() })
}

// close closes all clients. It waits for their commits' background work until ctx ends.
func (all *callers) close(ctx context.Context) {
	all.mu.Lock()
	all.closed = true
	for _, c := range all.byID {
		c.client.Finish(ctx)
		all.end(c)
	}
	all.mu.Unlock()
	all.ending.Wait()
}

// retain keeps the client beyond the call, until release.
func (c *caller) retain() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.uses++
}

func (c *caller) release() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.unused()
}

// unused ends one use. The caller holds mu.
func (c *caller) unused() {
	c.uses--
	c.used = time.Now()
}
