package node

import (
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// suspicion is a timestamp: changes up to it may have been handled by a process that has
// died since, perhaps of handling them. That process is this node's previous one, or one
// of another node. The dispatcher runs observers for such changes with care. suspicion
// only grows. It owns nothing else, and is safe for concurrent use: the worker of changes
// raises it, the dispatcher reads it.
type suspicion struct{ until atomic.Uint64 }

// raise sets the timestamp to now, a time by the oracle's clock, unless it is later
// already.
func (s *suspicion) raise(now time.Time) {
	ts := uint64(mvcc.TimestampAt(now.UnixMilli()))
	for before := s.until.Load(); before < ts &&
		!s.until.CompareAndSwap(before, ts); before = s.until.Load() {
	}
}

// get returns the timestamp.
func (s *suspicion) get() mvcc.Timestamp { return mvcc.Timestamp(s.until.Load()) }
