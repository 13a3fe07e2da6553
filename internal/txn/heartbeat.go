package txn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// heartbeats moves the expiry of the locks of commits that take long, so that nobody
// takes them for dead (invariant 6 of design section 4). One goroutine does it for all
// commits of the process.
//
// A timer per commit would be started and stopped for each, and fire for hardly any: a
// commit takes milliseconds, the first heartbeat is due after seconds.
type heartbeats struct {
	router *router
	oracle *oracle
	work   *background
	every  time.Duration // a third of LockTTL: two may fail before the locks expire
	sent   atomic.Uint64 // a counter

	mu   sync.Mutex
	runs map[*heartbeat]struct{} // commits under way
}

// heartbeat is a commit's primary, and when its lock was last known to be fresh.
type heartbeat struct {
	primary mvcc.Cell
	startTS mvcc.Timestamp
	// lock locks the primary if it is not prewritten with the rest; nil: it is.
	lock    func(context.Context) error
	last    time.Time // of the prewrite or the last heartbeat's end; guarded by heartbeats.mu
	beating bool      // one is being sent; likewise
}

// add registers a commit before its first prewrite.
func (h *heartbeats) add(b *heartbeat) {
	b.last = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[b] = struct{}{}
}

// remove forgets a commit that is decided, or given up.
func (h *heartbeats) remove(b *heartbeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, b)
}

// run looks for commits that need a heartbeat until ctx, the client's, ends.
func (h *heartbeats) run(ctx context.Context) {
	ticker := time.NewTicker(max(h.every/2, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			// In the background: a primary whose tablet does not answer must not keep the
			// others waiting.
			for _, b := range h.due(now) {
				h.work.run(func(ctx context.Context) { h.beat(ctx, b) })
			}
		case <-ctx.Done():
			return
		}
	}
}

// due returns the commits that need a heartbeat now, and marks them.
func (h *heartbeats) due(now time.Time) []*heartbeat {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*heartbeat
	for b := range h.runs {
		if !b.beating && now.Sub(b.last) >= h.every {
			b.beating = true
			due = append(due, b)
		}
	}
	return due
}

// beat sends one heartbeat. Its failure is no harm yet: the next is sent after a third of
// the time to live. Whether the transaction has been rolled back is for its commit to find
// out. A primary that could not be locked is tried again at once, as the locks of the rest
// have no other to live by.
func (h *heartbeats) beat(ctx context.Context, b *heartbeat) {
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	if b.lock != nil && b.lock(ctx) != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		b.beating = false
		return
	}
	h.sent.Add(1)
	beat := &pb.HeartbeatRequest{
		Primary: wire.CellPB(b.primary), StartTs: uint64(b.startTS),
		Expiry: uint64(h.oracle.expiry()),
	}
	_, _ = h.router.mutate(ctx, posOf(b.primary),
		&pb.TabletRequest{Op: &pb.TabletRequest_Heartbeat{Heartbeat: beat}})
	h.mu.Lock()
	defer h.mu.Unlock()
	b.last, b.beating = time.Now(), false
}
