package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
)

// A tablet that has panicked is opened anew from the store: at once the first few times,
// then after pauses that grow. A fault that comes back with every opening so costs an
// attempt every few minutes, and one that has gone leaves no tablet down. All of this
// belongs to the host's actor.

const (
	// maxReopens is how often one tablet is opened anew at once; after that the pauses begin.
	maxReopens = 3
	// reopenPause is the first pause, maxReopenPause the longest.
	reopenPause    = time.Minute
	maxReopenPause = 10 * time.Minute
	// reopenMemory is how long a tablet must not panic until its panics are forgotten.
	reopenMemory = time.Hour
)

// reopenings are the panics of this node's tablets that are not forgotten yet.
type reopenings map[uint64]*panics

// panics are one tablet's.
type panics struct {
	count int
	last  time.Time
	timer *time.Timer // the opening that waits for its pause to end; nil: none
}

// next notes a panic and returns how long to wait until the tablet is opened anew.
func (r reopenings) next(tablet uint64, now time.Time) time.Duration {
	for id, p := range r {
		if now.Sub(p.last) >= reopenMemory {
			delete(r, id)
		}
	}
	p := r[tablet]
	if p == nil {
		p = &panics{}
		r[tablet] = p
	}
	p.count++
	p.last = now
	if p.count <= maxReopens {
		return 0
	}
	pause := reopenPause
	for range p.count - maxReopens - 1 {
		if pause *= 2; pause >= maxReopenPause {
			return maxReopenPause
		}
	}
	return pause
}

// stop ends the pauses.
func (r reopenings) stop() {
	for _, p := range r {
		if p.timer != nil {
			p.timer.Stop()
		}
	}
}

type failedTablet struct {
	id  uint64
	err error
}

// pausedTablet is a failed tablet whose pause has ended.
type pausedTablet struct{ id uint64 }

// Failed implements tablet.Host.
func (h *host) Failed(id uint64, err error) {
	h.mu.Lock()
	h.failed[id] = fmt.Errorf("node: tablet %d has stopped: %w", id, err)
	h.mu.Unlock()
	h.n.router.Follows(id, 0) // it leads nothing any more
	h.n.system.Root.Send(h.pid, &failedTablet{id, err})
}

// onFailed has a tablet opened anew after a panic. After a storage fault it stays
// stopped: nothing may be acknowledged that the store has not taken (design section 10).
func (h *host) onFailed(m *failedTablet) {
	if !errors.Is(m.err, tablet.ErrPanic) {
		return
	}
	pause := h.reopens.next(m.id, time.Now())
	if pause == 0 {
		h.reopen(m.id)
		return
	}
	h.n.cfg.Logger.Error("a tablet panics again and again; it is opened anew after a pause", "tablet", m.id, "pause", pause)
	h.reopens[m.id].timer = time.AfterFunc(pause, func() { h.n.system.Root.Send(h.pid, &pausedTablet{m.id}) })
}

// onPaused opens a tablet anew that has not been in the meantime.
func (h *host) onPaused(m *pausedTablet) {
	h.mu.Lock()
	err := h.failed[m.id]
	h.mu.Unlock()
	if errors.Is(err, tablet.ErrPanic) {
		h.reopen(m.id)
	}
}

// reopen starts a tablet anew from the store.
func (h *host) reopen(id uint64) {
	h.n.replicas.Reopen(id, func(err error) {
		if err != nil {
			h.n.cfg.Logger.Error("a tablet could not be opened anew", "tablet", id, "error", err)
			return
		}
		h.startOthers()
	})
}
