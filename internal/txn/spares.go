package txn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Spare timestamps (docs/adr/0061). The tablet that commits a transaction which has read nothing
// requests a second timestamp beside the commit timestamp and returns it. The next transaction
// of this process that reads nothing takes it as its start timestamp, in place of a request to
// the oracle.
//
// No snapshot may have such a timestamp: it was granted before its transaction began (§2.3;
// design section 4, "Order"). As the name of a transaction, and as the bound above which
// the commits of others conflict, it is as good as any: it is unique, and a lower one conflicts
// more.

const (
	// maxSpares is the number of spare timestamps that are kept; as many callers can commit
	// concurrently without a request.
	maxSpares = 256
	// maxSpareAge is the age at which a spare timestamp is dropped. It is far below the
	// history, so that a tablet can tell what has become of its transaction.
	maxSpareAge = 2 * time.Second
	// sparesAfterConflict is the number of commits after a conflict that request their start
	// timestamps from the oracle. It bounds the messages lost to cells that many processes
	// write: one in so many.
	sparesAfterConflict = 8
)

// spares are the unused timestamps that tablets have returned to this process.
type spares struct {
	mu    sync.Mutex
	free  []spare // in the order of arrival
	pause int     // commits that still request theirs from the oracle
}

type spare struct {
	ts  mvcc.Timestamp
	got time.Time
}

// take removes and returns the newest spare timestamp.
func (s *spares) take(now time.Time) (ts mvcc.Timestamp, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause > 0 {
		s.pause--
		return 0, false
	}
	last := len(s.free) - 1
	if last < 0 {
		return 0, false
	}
	if newest := s.free[last]; !newest.old(now) {
		s.free = s.free[:last]
		return newest.ts, true
	}
	s.free = s.free[:0] // the others are older
	return 0, false
}

// old reports whether the timestamp must not be used any more. The monotonic clock stops while
// the machine is suspended, so the wall clock counts too.
func (s *spare) old(now time.Time) bool {
	wall := now.Round(0).Sub(s.got.Round(0))
	return now.Sub(s.got) > maxSpareAge || wall > maxSpareAge || wall < 0
}

// put keeps a timestamp that nothing has used. 0 means that the tablet returned none.
func (s *spares) put(ts mvcc.Timestamp, now time.Time) {
	if ts == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == maxSpares {
		s.free = append(s.free[:0], s.free[maxSpares/2:]...)
	}
	s.free = append(s.free, spare{ts, now})
}

// conflicted records that a commit at a spare timestamp met a later commit of another process.
func (s *spares) conflicted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = sparesAfterConflict
}

// commitStart is the start timestamp of a commit.
type commitStart struct {
	at    mvcc.Timestamp // 0: none yet
	blind bool           // it is not that of a snapshot: the transaction has read nothing
	spare bool           // it is a spare one
}

// begin sets the start timestamp before anything is sent. That of a transaction without reads is
// only its name and the bound of its conflicts, so a spare one will do; any other one is that of
// its snapshot.
func (s *commitStart) begin(ctx context.Context, t *Txn) error {
	if s.at != 0 {
		return nil
	}
	if s.at = t.begun(); s.at != 0 {
		return nil
	}
	if ts, ok := t.c.oracle.atOnce(); ok {
		s.at = ts
		return nil
	}
	s.blind = true
	if s.at, s.spare = t.c.spares.take(time.Now()); s.spare {
		return nil
	}
	return s.request(ctx, t)
}

// restart replaces a spare timestamp at which the commit was surely refused: another commit may
// have changed the cells before this transaction began. The transaction has read nothing, so its
// writes need not be computed again.
func (s *commitStart) restart(ctx context.Context, t *Txn) error {
	t.c.spares.conflicted()
	s.spare = false
	return s.request(ctx, t)
}

func (s *commitStart) request(ctx context.Context, t *Txn) (err error) {
	asked := t.span.Child(spanOracle)
	s.at, err = t.c.oracle.get(ctx)
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
