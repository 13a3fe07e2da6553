package txn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/background"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// heartbeats extends the primary locks of slow commits, so that other clients do not roll these
// back (design section 4, "A missing primary is not a rollback"). One goroutine serves all commits
// of the process.
//
// A timer per commit would almost never fire: a commit takes milliseconds, the first heartbeat
// is due after seconds.
type heartbeats struct {
	router *request.Router
	oracle *request.Oracle
	work   *background.Group
	every  time.Duration // a third of LockTTL
	sent   atomic.Uint64 // a counter

	mu   sync.Mutex
	runs map[*heartbeat]struct{} // commits under way
}

// heartbeat is a commit's primary and the time at which its lock was last extended.
type heartbeat struct {
	primary mvcc.Cell
	startTS mvcc.Timestamp
	// lock prewrites the primary; nil if it is prewritten with the rest.
	lock    func(context.Context) error
	last    time.Time // of add or of the last heartbeat's end; guarded by heartbeats.mu
	beating bool      // a heartbeat is being sent; guarded by heartbeats.mu
}

// add registers a commit before its first prewrite.
func (h *heartbeats) add(b *heartbeat) {
	b.last = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[b] = struct{}{}
}

// remove unregisters a commit that is decided or abandoned.
func (h *heartbeats) remove(b *heartbeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, b)
}

// run sends heartbeats until ctx, the client's, ends.
func (h *heartbeats) run(ctx context.Context) {
	ticker := time.NewTicker(max(h.every/2, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			// In the background: an unresponsive tablet must not delay the other heartbeats.
			for _, b := range h.due(now) {
				h.work.Run(func(ctx context.Context) { h.beat(ctx, b) })
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

// beat sends one heartbeat. One that fails is not repeated: the next follows after a third to a
// half of LockTTL. If the transaction has been rolled back, its commit detects that. A primary that
// could not be locked is retried at the next tick of run, because only the primary's lock keeps the
// others alive.
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
		Expiry: uint64(h.oracle.Expiry()),
	}
	_, _ = h.router.Mutate(ctx, request.PosOf(b.primary),
		&pb.TabletRequest{Op: &pb.TabletRequest_Heartbeat{Heartbeat: beat}})
	h.mu.Lock()
	defer h.mu.Unlock()
	b.last, b.beating = time.Now(), false
}
