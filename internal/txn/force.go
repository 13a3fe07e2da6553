package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ForceLock is ResolveLock that takes the lock's transaction for dead, whatever it says
// of itself: if it is undecided, it is rolled back at its primary, and its commit will be
// refused (invariants 3 and 7 of design section 4: being wrong about a death costs an
// abort, never correctness). resolved is false while a one-phase commit of it is in
// flight, or if nobody can say any more what became of it.
func (c *Client) ForceLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error) {
	commitTS, known := c.resolver.decision(l.Lock.StartTS)
	if !known {
		var live bool
		if commitTS, live, err = c.resolver.ask(ctx, l, true); err != nil || live {
			return false, err
		}
		c.resolver.remember(l.Lock.StartTS, commitTS)
	}
	err = c.resolver.apply(ctx, l.Lock.StartTS, commitTS, []mvcc.LockInfo{l})
	return err == nil, err
}
