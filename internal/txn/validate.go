package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file validates: it checks, in the midst of a commit, that cells which the transaction
// does not write have not changed since its start. It keeps nothing, here or in the tablets,
// and runs on the goroutine that commits.
//
// Why that is sound: all locks of the transaction are durable, and the commit timestamp was
// taken after that. Whoever commits below this timestamp had its own locks durable before it
// asked for its own, which was before ours was given (invariant 10 of design section 4). So
// reads at the commit timestamp meet either that lock or what it became, and what they
// return never changes: they are the snapshot that every transaction above it sees.

// validate returns nil if no validation of the transaction has changed, or is about to, from
// its start up to commitTS. It never waits for a lock: two transactions that validate what
// the other writes would wait for each other.
func (t *Txn) validate(ctx context.Context, commitTS mvcc.Timestamp) error {
	cells := t.validations
	if len(cells) == 0 {
		return nil
	}
	at := reader{c: t.c, at: commitTS, span: t.span}
	for rounds := 0; ; rounds++ {
		which := make([]int, len(cells))
		for i := range which {
			which[i] = i
		}
		b := newReadBatch(cells, which)
		b.need = 0
		if err := at.readAll(ctx, commitTS, b); err != nil {
			return Errorf("validation: %w", err)
		}
		var locks []mvcc.LockInfo
		for i := range b.results {
			switch res := &b.results[i]; {
			case res.Status == mvcc.StatusLocked:
				locks = append(locks, *res.Lock)
			case res.CommitTS >= t.at:
				return &ConflictError{Cell: b.cells[i], CommitTS: res.CommitTS}
			}
		}
		if len(locks) == 0 {
			return nil
		}
		if err := t.c.resolver.clearAway(ctx, locks, rounds); err != nil {
			return err
		}
	}
}
