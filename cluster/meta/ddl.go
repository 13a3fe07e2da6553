package meta

import (
	"context"
	"fmt"
)

// The lock that serializes the schema changes of one node, taken on the goroutines of the calls
// that change tables, tablets or the catalogue. Safety does not depend on it: other nodes do not
// see it, and conditional writes keep the records consistent.

// ddlLock is a mutex whose waiters return when their context ends. Its holder may be waiting for
// an unavailable tablet, and a caller with a deadline must not wait for that. The holder is the
// goroutine that put the token into the channel.
type ddlLock chan struct{}

// newDDLLock returns an unlocked ddlLock.
func newDDLLock() ddlLock { return make(ddlLock, 1) }

// lock waits for the lock. If ctx ends first, it returns an error that wraps ctx's and
// the lock is not held.
func (l ddlLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("meta: another change of tables or observers is under way: %w", ctx.Err())
	}
}

// unlock passes the lock to the next waiter. Only its holder may call it.
func (l ddlLock) unlock() { <-l }
