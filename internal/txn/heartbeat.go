package txn

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// heartbeats moves the expiry of the locks of commits that take long, so that nobody
// takes them for dead (invariant 6 of design section 4). One goroutine does it for all
// commits of the process.
//
// A timer per commit would be started and stopped for each, and fire for hardly any: a
// commit takes milliseconds, the first heartbeat is due after seconds.
type heartbeats struct {
	c     *Client
	every time.Duration // a third of LockTTL: two may fail before the locks expire
	mu    sync.Mutex
	runs  map[*twoPhase]struct{} // commits under way
}

// heartbeat is when a commit's locks were last known to be fresh. heartbeats.mu guards it.
type heartbeat struct {
	last    time.Time // of the prewrite or the last heartbeat's end
	beating bool      // one is being sent
}

func (h *heartbeats) init(c *Client) {
	h.c, h.every = c, c.cfg.LockTTL/3
	h.runs = make(map[*twoPhase]struct{})
}

// add registers a commit before its first prewrite.
func (h *heartbeats) add(p *twoPhase) {
	p.beat.last = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[p] = struct{}{}
}

// remove forgets a commit that is decided, or given up.
func (h *heartbeats) remove(p *twoPhase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.runs, p)
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
			for _, p := range h.due(now) {
				h.c.work.run(func() { h.beat(ctx, p) })
			}
		case <-ctx.Done():
			return
		}
	}
}

// due returns the commits that need a heartbeat now, and marks them.
func (h *heartbeats) due(now time.Time) []*twoPhase {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*twoPhase
	for p := range h.runs {
		if !p.beat.beating && now.Sub(p.beat.last) >= h.every {
			p.beat.beating = true
			due = append(due, p)
		}
	}
	return due
}

// beat sends one heartbeat. Its failure is no harm yet: the next is sent after a third of
// the time to live.
func (h *heartbeats) beat(ctx context.Context, p *twoPhase) {
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	h.c.stats.heartbeats.Add(1)
	_, _ = h.c.mutate(ctx, posOf(p.primary), &pb.TabletRequest{Op: &pb.TabletRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{
		Primary: wire.CellPB(p.primary), StartTs: uint64(p.t.at), Expiry: uint64(h.c.expiry()),
	}}})
	h.mu.Lock()
	defer h.mu.Unlock()
	p.beat.last, p.beat.beating = time.Now(), false
}
