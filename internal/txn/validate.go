package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Validation: the check, during a commit, that cells which the transaction does not write have
// not changed since its start. It leaves no state here or in the tablets, and runs on the
// goroutine that commits.
//
// Why this is sound: all locks of the transaction were durable before it obtained its commit
// timestamp. Every transaction with a lower commit timestamp had its locks durable before it
// requested that timestamp, which was before ours was allocated (design section 4, "Order"). So
// reads at our commit timestamp find either its lock or the record that replaced the lock, and
// their results never change: they are the snapshot that every later transaction sees.

// validate returns nil if no validated cell has a commit from the start timestamp up to commitTS,
// or a lock that may become one. It resolves locks, but never waits for one: two transactions that
// validate each other's writes would deadlock.
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
			return Errorf("validate the reads: %w", err)
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
