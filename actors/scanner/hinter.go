package scanner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

const (
	hintBatch   = 256                    // most cells in one message to the dispatcher
	hintTries   = 6                      // tries of a cell whose lock another worker has
	hintPause   = 5 * time.Millisecond   // pause before the second try; doubled each time
	hintLockFor = 200 * time.Millisecond // longest wait for lockd
)

// hint is a message with cells that have become dirty. tried counts how often their locks were
// refused.
type hint struct {
	cells []mvcc.Cell
	tried int
}

// hinter is the actor that passes hints on to the dispatcher. It blocks while it waits for the
// dispatcher and lockd; hints that arrive in the meantime are bounded and may be dropped.
type hinter struct {
	cfg         Config
	ctx         context.Context
	targets     map[notify.Target]bool
	locks       *holder
	batch       *actorkit.Batcher[*hint]
	waiting     *atomic.Int64 // cells sent to the hinter and not yet passed on
	stats       *Stats
	done        chan struct{} // closed when it has ended
	backlog     backlogs
	hintDropped func(notify.Target) // called when a hint was dropped for lack of room
}

// Receive handles one message.
func (h *hinter) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *hint:
		if h.batch.Add(c, m, len(m.cells)) {
			h.flush(c)
		}
	case *actorkit.Flush:
		if h.batch.Due(m) {
			h.flush(c)
		}
	case *actor.Stopped:
		close(h.done)
	}
}

// flush passes on the waiting cells, each once, except those of targets with a backlog.
func (h *hinter) flush(c actor.Context) {
	tries := make(map[mvcc.Cell]int)
	var cells []mvcc.Cell
	for _, m := range h.batch.Take() {
		h.waiting.Add(-int64(len(m.cells)))
		for _, cell := range m.cells {
			t := notify.TargetOf(cell)
			if _, dup := tries[cell]; dup || !h.targets[t] {
				continue
			}
			if h.backlog[t].on.Load() { // the scanners submit it in order
				h.stats.HintsDropped.Add(1)
			} else {
				cells = append(cells, cell)
				tries[cell] = m.tried
			}
		}
	}
	again := map[int][]mvcc.Cell{}
	for len(cells) > 0 && h.ctx.Err() == nil {
		n := min(len(cells), hintBatch)
		for _, cell := range h.pass(cells[:n]) {
			again[tries[cell]+1] = append(again[tries[cell]+1], cell)
		}
		if h.cfg.Hints == HintsTwice {
			h.pass(cells[:n])
		}
		cells = cells[n:]
	}
	for tried, cells := range again {
		h.later(c, cells, tried)
	}
}

// pass submits cells to the dispatcher and returns those that another worker is handling.
func (h *hinter) pass(cells []mvcc.Cell) (refused []mvcc.Cell) {
	ctx, cancel := context.WithTimeout(h.ctx, hintLockFor)
	states := h.locks.take(ctx, cells)
	cancel()
	items := make([]notify.Dirty, len(cells))
	for i, cell := range cells {
		items[i] = notify.Dirty{Cell: cell, Held: states[i] == lockGranted, Done: func() {
			h.locks.release(cell)
		}}
	}
	ctx, cancel = context.WithTimeout(h.ctx, requestTimeout)
	defer cancel()
	answers, err := h.cfg.Dispatcher.Submit(ctx, items)
	if err != nil {
		// Whether Done will be called is unknown. The locks end with their leases, and the next
		// scan finds the cells.
		for i, cell := range cells {
			if states[i] == lockGranted {
				h.locks.drop(cell)
			}
		}
		h.stats.HintsDropped.Add(uint64(len(cells)))
		return nil
	}
	for i, answer := range answers {
		if answer != notify.Accepted && states[i] == lockGranted {
			h.locks.release(cells[i])
		}
		switch answer {
		case notify.Accepted:
			h.stats.HintsPassed.Add(1)
		case notify.Refused:
			refused = append(refused, cells[i])
		case notify.Full:
			h.stats.HintsDropped.Add(1)
			h.hintDropped(notify.TargetOf(cells[i]))
		case notify.Stopped:
			h.stats.HintsDropped.Add(1)
		case notify.Collapsed, notify.Deferred, notify.Unlinked, notify.Paused:
			h.stats.HintsPassed.Add(1)
		}
	}
	return refused
}

// later retries cells whose locks were refused, because the other worker may be handling an older
// change. After hintTries they are left to the scans.
func (h *hinter) later(c actor.Context, cells []mvcc.Cell, tried int) {
	if tried >= hintTries || h.waiting.Load() > int64(h.cfg.HintQueue) {
		h.stats.HintsDropped.Add(uint64(len(cells)))
		return
	}
	h.waiting.Add(int64(len(cells)))
	self, root := c.Self(), c.ActorSystem().Root
	time.AfterFunc(hintPause<<(tried-1), func() {
		root.Send(self, &hint{cells: cells, tried: tried})
	})
}
