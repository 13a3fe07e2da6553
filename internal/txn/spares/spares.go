// Package spares keeps spare timestamps (docs/adr/0061). The tablet that commits a transaction which has read nothing
// requests a second timestamp beside the commit timestamp and returns it. The next transaction
// of this process that reads nothing takes it as its start timestamp, in place of a request to
// the oracle.
//
// No snapshot may have such a timestamp: it was granted before its transaction began (§2.3;
// design section 4, "Order"). As the name of a transaction, and as the bound above which
// the commits of others conflict, it is as good as any: it is unique, and a lower one conflicts
// more.
package spares

import (
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

const (
	// maxSpares is the maximum number of spare timestamps that are kept; as many callers can
	// commit concurrently without a request. When one more arrives, the older half is dropped.
	maxSpares = 256
	// maxSpareAge is the time after its arrival at which a spare timestamp is dropped. It is far
	// shorter than history is kept, so that a tablet can tell what has become of a transaction with
	// such a timestamp.
	maxSpareAge = 2 * time.Second
	// sparesAfterConflict is the number of commits after a conflict that request their start
	// timestamps from the oracle. It bounds the share of commits refused for their spare timestamp, at
	// cells that many processes write.
	sparesAfterConflict = 8
)

// Spares are the unused timestamps that tablets have returned to this process. The zero value is
// ready to use; it is safe for concurrent use.
type Spares struct {
	mu    sync.Mutex
	free  []spare // in the order of arrival
	pause int     // next calls of Take that return none
}

type spare struct {
	ts  mvcc.Timestamp
	got time.Time
}

// Take removes and returns the newest spare timestamp. ok is false if there is none that may be
// used now.
func (s *Spares) Take(now time.Time) (ts mvcc.Timestamp, ok bool) {
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
	s.free = s.free[:0] // all other spares are older
	return 0, false
}

// old reports whether the timestamp must not be used any more. The monotonic clock stops while
// the machine is suspended, so the wall clock counts too.
func (s *spare) old(now time.Time) bool {
	wall := now.Round(0).Sub(s.got.Round(0))
	return now.Sub(s.got) > maxSpareAge || wall > maxSpareAge || wall < 0
}

// Put keeps a timestamp that nothing has used. 0 means that the tablet returned none.
func (s *Spares) Put(ts mvcc.Timestamp, now time.Time) {
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

// Conflicted records that a commit at a spare timestamp was refused as too old. The next
// sparesAfterConflict calls of Take return none.
func (s *Spares) Conflicted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = sparesAfterConflict
}
