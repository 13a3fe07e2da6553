package mvcc_test

import (
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// collect advances the collection of history by a step (held history stays readable): raise the
// bound, never above an open snapshot, resolve transactions from below it, raise the safepoint,
// delete a little.
func (h *history) collect() {
	bound := h.tablets[0].Bound()
	switch {
	case len(h.passes) > 0:
		h.collectStep()
	case bound == h.tablets[0].Safepoint():
		h.raiseBound(bound)
	case len(h.undecided(bound)) > 0:
		for _, l := range h.undecided(bound) {
			if l.Lock.Token == 0 {
				h.resolveNow(l)
			}
		}
	default:
		for i, view := range h.tablets {
			view.SafepointTS = bound
			h.passes = append(h.passes, &pass{tablet: i, byList: h.chance(50)})
		}
		h.logf("safepoint %d", bound)
	}
}

// raiseBound publishes a new bound, at most the present and the open snapshot.
func (h *history) raiseBound(bound mvcc.Timestamp) {
	limit := h.now
	if h.snapshot != 0 {
		limit = min(limit, h.snapshot)
	}
	if limit <= bound {
		return
	}
	bound += mvcc.Timestamp(h.rng.IntN(int(limit-bound) + 1))
	for _, view := range h.tablets {
		view.BoundTS = bound
	}
	h.logf("bound %d", bound)
}

// pass is a pass of collection over one tablet, by surveys or by remembered garbage.
type pass struct {
	tablet int
	byList bool
	place  mvcc.SurveyPlace
	list   []mvcc.Garbage // found, not yet collected
}

// collectStep advances one pass by a step, with limits of a few entries, so that all other
// operations interleave.
func (h *history) collectStep() {
	i := h.rng.IntN(len(h.passes))
	p := h.passes[i]
	view := h.tablets[p.tablet]
	if len(p.list) == 0 && !h.find(p, view) {
		h.passes = slices.Delete(h.passes, i, i+1)
		return
	}
	limits := mvcc.CollectLimits{Entries: 1 + h.rng.IntN(4), Bytes: 1 << 20, Looked: 1 + h.rng.IntN(30)}
	step, n, err := mvcc.CollectCells(view, p.list, limits)
	if err != nil {
		h.check(faultf(assertNoError, "collection: %v", err))
		return
	}
	p.list = p.list[n:]
	h.garbage[p.tablet] = append(h.garbage[p.tablet], step.Kept...)
	h.logf("tablet %d: collected %+v", p.tablet, step.Mutations)
	h.deleted(view, step.Mutations)
}

// find gives a pass garbage to collect. The survey may precede the collection by a while.
func (h *history) find(p *pass, view *mvcctest.MemView) bool {
	switch {
	case p.byList:
		p.byList, p.place = false, mvcc.SurveyEnd
		for _, g := range h.garbage[p.tablet] {
			if g.From <= view.Safepoint() {
				p.list = append(p.list, g)
			}
		}
		h.garbage[p.tablet] = slices.DeleteFunc(h.garbage[p.tablet], func(g mvcc.Garbage) bool {
			return g.From <= view.Safepoint()
		})
		p.list = mvcc.SortGarbage(p.list)
		return true
	case p.place.Done():
		return false
	}
	list, _, next, err := mvcc.Survey(view, wholeTable, p.place, 1+h.rng.IntN(5), 1+h.rng.IntN(10))
	if err != nil {
		h.check(faultf(assertNoError, "survey: %v", err))
	}
	p.list, p.place = mvcc.SortGarbage(list), next
	return true
}

// deleted applies the deletions of collection. The loss of an acknowledgment deleted with its cell
// is the only readable one.
func (h *history) deleted(view *mvcctest.MemView, list []mvcc.Mutation) {
	for i := range list {
		if m := &list[i]; m.Group == mvcc.GroupWrite && m.Cell.Class == mvcc.ClassAck {
			w, _, _ := view.Newest(m.Cell)
			h.model.gone[m.Cell] = max(h.model.gone[m.Cell], w.CommitTS)
		}
	}
	view.Apply(list)
	h.seen.Collected += len(list)
}

// hold opens a snapshot, reads from it, or closes it. While it is open every read of it is
// answered, except for locks.
func (h *history) hold() {
	switch {
	case h.snapshot == 0:
		h.snapshot = h.tick()
		h.logf("snapshot %d opened", h.snapshot)
	case h.chance(25):
		h.logf("snapshot %d closed", h.snapshot)
		h.snapshot = 0
	default:
		c := dataCells()[h.rng.IntN(8)]
		if res, err := mvcc.Get(h.viewOf(c), c, h.snapshot); err == nil && res.Status == mvcc.StatusTooOld {
			h.check(faultf(assertHeld, "%s at %d, bound %d", show(c), h.snapshot,
				h.viewOf(c).Bound()))
		}
		h.readCell(c, h.snapshot)
	}
}

// collectEverything raises bound and safepoint to the present, with everything decided, and
// collects all garbage. Then nothing superfluous may be left.
func (h *history) collectEverything() {
	h.passes, h.snapshot = nil, 0
	for _, view := range h.tablets {
		view.BoundTS, view.SafepointTS = h.now, h.now
		// a delete kept for its notification is removed once that is cleared; here at random
		for range 2 {
			limits := mvcc.CollectLimits{
				Entries: 1 + h.rng.IntN(5), Bytes: 1 << 20, Looked: 1 + h.rng.IntN(50),
			}
			h.model.acksMayGo()
			err := collectAll(view, 1+h.rng.IntN(20), limits, func(s *mvcc.CollectStep) {
				h.seen.Collected += len(s.Mutations)
			})
			if err != nil {
				h.check(faultf(assertNoError, "collection: %v", err))
				return
			}
		}
		h.check(h.checkSpace(view))
	}
}

// isDirty reports whether an observer has a notification of the cell.
func isDirty(view mvcc.View, c mvcc.Cell) bool {
	return slices.ContainsFunc(notifyCells(view, c), func(c mvcc.Cell) bool {
		_, dirty, _ := view.Notification(c)
		return dirty
	})
}

// checkSpace checks the state of a tablet after a pass at the present: each cell's newest record
// with its value, and no delete that nothing holds.
func (h *history) checkSpace(view *mvcctest.MemView) *fault {
	for _, e := range view.Entries() {
		switch e.Group {
		case mvcc.GroupHistory, mvcc.GroupLocked, mvcc.GroupRollback:
			return faultf(assertSpace, "%c %s %d is left at safepoint %d", e.Group, show(e.Cell),
				e.TS, view.Safepoint())
		case mvcc.GroupData:
			if w, ok, _ := view.Newest(e.Cell); !ok || !w.Long || w.StartTS != e.TS {
				return faultf(assertNamed, "the value %d of %s is named by no record", e.TS,
					show(e.Cell))
			}
		case mvcc.GroupWrite:
			dirty := isDirty(view, e.Cell)
			if e.Write.Kind == mvcc.KindDelete && !dirty {
				return faultf(assertSpace, "the delete at %d of %s is left", e.TS, show(e.Cell))
			}
			if e.Cell.Class == mvcc.ClassAck {
				if _, there, _ := view.Newest(mvcc.Cell{Table: testTable, Row: e.Cell.Row,
					Column: "body"}); !there {
					if !isDirty(view, mvcc.Cell{Table: testTable, Row: e.Cell.Row, Column: "body"}) {
						return faultf(assertSpace, "the ack %s is left of a cell that is not",
							show(e.Cell))
					}
				}
			}
		}
	}
	return nil
}
