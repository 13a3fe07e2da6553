package txn

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// commitStart is the start timestamp of a commit. A transaction that has read nothing may have a
// spare one (docs/adr/0061).
type commitStart struct {
	at    mvcc.Timestamp // 0: none yet
	blind bool           // nothing was read, and no oracle in this process issued at
	spare bool           // at is a spare timestamp
}

// begin sets the start timestamp before anything is sent. A transaction with reads has that of its
// snapshot. For one without reads it is only the name and the bound above which other commits
// conflict, so a spare one suffices.
func (s *commitStart) begin(ctx context.Context, t *Txn) error {
	if s.at != 0 {
		return nil
	}
	if s.at = t.begun(); s.at != 0 {
		return nil
	}
	if ts, ok := t.c.oracle.Now(); ok {
		s.at = ts
		return nil
	}
	s.blind = true
	if s.at, s.spare = t.c.spares.Take(time.Now()); s.spare {
		return nil
	}
	return s.request(ctx, t)
}

// restart replaces a spare timestamp at which the commit was surely refused: the conflicting
// commit may have ended before this transaction began. The transaction has read nothing, so its
// writes need not be computed again.
func (s *commitStart) restart(ctx context.Context, t *Txn) error {
	t.c.spares.Conflicted()
	s.spare = false
	return s.request(ctx, t)
}

func (s *commitStart) request(ctx context.Context, t *Txn) (err error) {
	asked := t.span.Child(spanOracle)
	s.at, err = t.c.oracle.Get(ctx)
	endSpan(asked, err)
	return err
}

// surelyRefused reports whether a tablet has refused every copy of a commit, those still in flight
// too, because its start timestamp is too old.
func surelyRefused(err error) bool {
	if _, open := errors.AsType[*undecided](err); open {
		return false
	}
	_, conflict := errors.AsType[*ConflictError](err)
	return conflict || errors.Is(err, ErrSnapshotTooOld)
}
