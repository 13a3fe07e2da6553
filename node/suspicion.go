package node

import (
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// suspicion is up to when changes may have been met by a process that has died since, and
// perhaps of that: one of this node before this one, or one of another node. Safe for
// concurrent use.
type suspicion struct{ until atomic.Uint64 }

// raise puts it up to the present, about, by the oracle's clock.
func (s *suspicion) raise(now time.Time) {
	ts := uint64(mvcc.TimestampAt(now.UnixMilli()))
	for before := s.until.Load(); before < ts &&
		!s.until.CompareAndSwap(before, ts); before = s.until.Load() {
	}
}

func (s *suspicion) get() mvcc.Timestamp { return mvcc.Timestamp(s.until.Load()) }
