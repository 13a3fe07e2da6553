package tablet

import (
	"time"

	"github.com/percolator-go/percolator/actors/tablet/history"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Deletion of the history below the safepoint, by the leader (design section 4, "Bounded history").
// Package history decides what to do next; each step and each survey ends by scheduling the next.
// All of it runs in the tablet's turns.

// collectStep is the message that triggers the next step.
type collectStep struct{}

// beginPass begins a pass if this replica leads and there may be history to collect. The history of
// the meta tablet, and of a tablet frozen for a merge, is not collected.
func (t *Tablet) beginPass() {
	if t.leading && t.id != MetaTabletID && t.frozen == nil {
		dropped := t.appliedCatalogue.LastDrop(t.descriptor, t.appliedSafepoint)
		t.history.Begin(t.appliedSafepoint, dropped)
	}
}

// onCollectStep continues the pass under way: it executes a step, starts the next part of the
// survey on a read worker, or ends the pass. After a pass it begins the next one if the safepoint
// has risen.
func (t *Tablet) onCollectStep() {
	h := &t.history
	p, work := h.Due()
	switch {
	case work == history.None || !t.leading || t.frozen != nil || t.failed != nil:
	case t.barrier.op != nil || noRoom(t.logs, t.store) != nil: // nothing may be proposed now
		h.Retry()
	case work == history.Delete:
		t.makeStep(p)
	case work == history.Look:
		t.reads.background.Submit(p.Survey(t.store, t.descriptor, t.appliedCatalogue, t.self.send))
	default:
		if h.End(); p.Safepoint < t.appliedSafepoint {
			t.beginPass()
		}
	}
	t.ready()
}

// makeStep evaluates and proposes one step. The step does not wait for the pipeline, counts only in
// its total (pipeline.free), and may use the disk reserve, since it frees space.
func (t *Tablet) makeStep(p *history.Pass) {
	h := &t.history
	begin := time.Now()
	snap := t.store.Snap()
	defer snap.Close()
	e := t.evaluate(snap)
	step, looked, err := mvcc.CollectCells(e.view, p.Batch(), history.StepLimits())
	if err != nil {
		t.fail(err)
		return
	}
	p.Looked(looked) // the step may have stopped early, at a limit
	if len(step.Mutations) > 0 {
		h.StepProposed()
		e.proposal.collects = true
		if refusal := e.addEffects(step.Mutations); refusal != nil || !t.propose(e.proposal) {
			h.StepLost()
		}
	}
	h.Keep(p, step.Kept)
	h.StepEnded(time.Since(begin), t.counters.operations(), t.appliedSafepoint)
}

// onSurveyed handles the result of a survey and continues the pass after a pause.
func (t *Tablet) onSurveyed(m *history.Surveyed) {
	switch {
	case !t.history.Found(m):
	case m.Err != nil:
		t.fail(m.Err)
	default:
		t.history.Pause(t.counters.operations(), t.appliedSafepoint)
	}
}
