package meta

import (
	"context"
	"fmt"
)

// ddlLock is a mutex that waiters give up when their context ends: who holds it may wait
// for a tablet that nobody serves, and a caller with a deadline must not wait with it.
type ddlLock chan struct{}

func newDDLLock() ddlLock { return make(ddlLock, 1) }

// lock returns an error that wraps ctx's when that ends first; the lock is not held then.
func (l ddlLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("meta: another change of tables or observers is under way: %w", ctx.Err())
	}
}

func (l ddlLock) unlock() { <-l }
