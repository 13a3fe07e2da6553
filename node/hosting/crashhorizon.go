package hosting

import (
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// crashHorizon is the time at which this node last learned that a process had died. That process
// may have died of running an observer for a change up to this timestamp; so the dispatcher records
// an attempt before it runs an observer for such a change. The process is this node's previous one,
// another node's or a worker's.
//
// The timestamp only grows. It is safe for concurrent use: the worker of changes advances
// it, the dispatcher reads it.
type crashHorizon struct{ until atomic.Uint64 }

// advance sets the timestamp to now, a time by the oracle's clock, unless it is later
// already.
func (h *crashHorizon) advance(now time.Time) {
	ts := uint64(mvcc.TimestampAt(now.UnixMilli()))
	for before := h.until.Load(); before < ts; before = h.until.Load() {
		if h.until.CompareAndSwap(before, ts) {
			return
		}
	}
}

// get returns the timestamp.
func (h *crashHorizon) get() mvcc.Timestamp { return mvcc.Timestamp(h.until.Load()) }
