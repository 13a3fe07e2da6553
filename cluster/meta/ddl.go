package meta

import (
	"context"
	"fmt"
)

// This file holds the lock that lets one node make one schema change at a time. It is
// taken on the goroutines of the calls that change tables, tablets or the catalogue, and
// is not a safety mechanism: other nodes do not know of it, and conditional writes are
// what keeps the records right.

// ddlLock is a mutex whose waiters give up when their context ends. Its holder may be
// waiting for a tablet that nobody serves, and a caller with a deadline must not wait
// with it. The holder is whoever has put the token into the channel.
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

// unlock gives the lock to the next waiter. It must be called by its holder only.
func (l ddlLock) unlock() { <-l }
