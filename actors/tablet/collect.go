package tablet

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file has the leader's deletion of history that the safepoint has passed (design
// section 4, invariant 11). It goes by passes, and each pass by steps. A step is
// evaluated in a turn of its own like any mutation, on the newest state with the effects
// in flight laid over it, and proposed as an entry of its own; the next one begins after
// it is visible. A tablet with nothing to collect does nothing. At most one survey on a
// read worker, one step and one reminder are under way. All but the survey runs in the
// tablet's turns.

// history is what this leader knows of its history: what is garbage or will be, and the
// pass under way. The tablet makes the steps and reports to history what has become of
// them. It begins anew (forget) with each leadership and each split.
type history struct {
	garbage
	unknown  bool           // nobody has surveyed the tablet since this replica leads: there may be anything
	dropped  mvcc.Timestamp // the last drop of one of its tables that a survey has covered; 0: none
	pass     *pass
	inFlight bool // a step is proposed and not yet visible
	armed    bool // a reminder for the next step is under way, perhaps from before forget
	// What the last step, or the last piece of a survey, took. The pause after it is a
	// multiple of this.
	spent    time.Duration
	seen     uint64         // the tablet's operations when the last step was made
	deleted  uint64         // entries, since this replica leads
	surveyed mvcc.Timestamp // the safepoint of the last survey

	surveyCost time.Duration  // what the last survey took of a read worker
	scratch    []mvcc.Garbage // note's
	remind     func()         // sends the tablet a collectStep
}

// forget begins anew, with nothing known. A reminder under way still comes, and is that of
// the next pass: a second one beside it would double the rate of the steps.
func (h *history) forget() {
	*h = history{garbage: newGarbage(), unknown: true, armed: h.armed, remind: h.remind}
}

// pass collects what one safepoint has reached: what is remembered, or, with survey set,
// all that a walk over the tablet finds.
type pass struct {
	safepoint mvcc.Timestamp
	list      []mvcc.Garbage // to be looked at; in the order of mvcc.SortGarbage
	survey    bool
	dropped   mvcc.Timestamp // the last drop of one of the tablet's tables when it began; 0: none
	asked     bool           // a read worker looks for more
	place     mvcc.SurveyPlace
	cost      time.Duration // of the survey so far
}

// A step's bounds. It is a part of a turn of the tablet, and about a millisecond long.
const (
	// Pieces of garbage that a step looks at, and what it may delete and read.
	stepGarbage = 128
	stepEntries = 512
	stepBytes   = 128 << 10
	stepLooked  = 512
)

// Pauses between steps: as many times what a step took, so that collection has about a
// tenth of the tablet's time while others use it, and half of it while nobody does; or
// while a pass is still under way when the safepoint moves on, for then more becomes
// garbage than a tenth can delete.
const (
	// The pause is that many times what the last step took, which counts as shortestStep
	// at least; it ends after longestPause. retryPause is the time until the next look
	// when nothing may be proposed, and after a step was lost.
	busyPause    = 9
	idlePause    = 1
	shortestStep = 100 * time.Microsecond
	longestPause = 200 * time.Millisecond
	retryPause   = 20 * time.Millisecond
)

// What is not remembered, and too little to be worth a survey, gets one after a time that
// depends on what surveys cost: so that a small tablet leaves nothing lying about, and a
// large one is not surveyed all the time.
const (
	// The time between such surveys is restTimes what the last one took, within these
	// bounds.
	shortestRest = 20 * time.Second
	longestRest  = time.Minute
	restTimes    = 200 // as long as the last survey took
)

// resurvey returns how far the safepoint must move before the tablet is surveyed for a
// little garbage.
func (h *history) resurvey() time.Duration {
	return min(max(shortestRest, restTimes*h.surveyCost), longestRest)
}

// entries returns about how many entries wait to be collected, now or at a later
// safepoint. It is 0 only if there are surely none.
func (h *history) entries() uint64 {
	if h.idle() {
		return 0
	}
	return uint64(max(h.waiting.total(), len(h.known), 1))
}

// idle reports whether there is surely nothing to collect, now or later.
func (h *history) idle() bool { return !h.unknown && h.pass == nil && h.all && len(h.known) == 0 }

// note remembers what the effects of a proposal, visible now, have made superfluous.
func (h *history) note(muts []mvcc.Mutation) {
	h.scratch = mvcc.GarbageOf(h.scratch[:0], muts)
	for i := range h.scratch {
		h.add(&h.scratch[i], 1)
	}
	// Scratch must not keep the proposal's strings in memory.
	clear(h.scratch)
	if h.dropped != 0 && len(muts) > 0 && !muts[0].Delete {
		h.dropped = 0 // a commit that came late: its record goes as well
	}
}

// begin begins a pass if the applied safepoint has reached anything and no pass is under
// way. dropped is when the last of the tablet's tables was dropped, as of the safepoint; 0 if
// none was.
func (h *history) begin(safepoint, dropped mvcc.Timestamp) {
	if h.pass != nil || safepoint == 0 {
		return
	}
	// What was forgotten is surveyed after a time whatever the histogram says: one cell
	// there stands for many entries, and deletions are counted off all that waits, so its
	// figures are too low.
	late := !h.all && safepoint.Millis()-h.surveyed.Millis() > h.resurvey().Milliseconds()
	if h.unknown || late || h.surveyWorth(safepoint) || dropped > h.dropped {
		// What is written from here on is remembered; what was there before, the survey
		// finds.
		h.garbage = newGarbage()
		h.unknown = true
		h.pass = &pass{safepoint: safepoint, survey: true, dropped: dropped}
	} else if due := h.takeDue(safepoint); len(due) > 0 {
		h.pass = &pass{safepoint: safepoint, list: due}
	} else {
		return
	}
	h.arm(0)
}

// arm has the tablet send itself a collectStep after the time, unless one is on its way.
func (h *history) arm(after time.Duration) {
	if h.armed {
		return
	}
	h.armed = true
	if after == 0 {
		h.remind()
		return
	}
	time.AfterFunc(after, h.remind)
}

// armAfterPause is arm after a pause in proportion to what the last step or survey took.
// The pause is short if nobody uses the tablet, by operations, the count of its
// operations so far, or if the pass is behind the safepoint.
func (h *history) armAfterPause(operations uint64, safepoint mvcc.Timestamp) {
	times := time.Duration(busyPause)
	if operations == h.seen || (h.pass != nil && h.pass.safepoint < safepoint) {
		times = idlePause
	}
	h.seen = operations
	h.arm(min(times*max(h.spent, shortestStep), longestPause))
}

// end ends the pass. A survey that came to its end has found all there was.
func (h *history) end() {
	p := h.pass
	h.pass = nil
	if p.survey {
		h.unknown, h.surveyed, h.surveyCost = false, p.safepoint, p.cost
		h.dropped = p.dropped
	}
	if h.idle() {
		h.waiting = histogram{} // it counts nearly, not exactly
	}
}

// stepMade records that a step's deletions are visible.
func (h *history) stepMade(muts []mvcc.Mutation) {
	h.inFlight = false
	h.deleted += uint64(len(muts))
	// What a survey finds due was never counted as waiting.
	if !h.unknown {
		h.waiting.take(superfluous(muts))
	}
}

// stepLost records that a step was not made. What it was to delete is still there but no
// longer remembered, so the pass begins again with a survey from the start.
func (h *history) stepLost() {
	h.inFlight, h.unknown = false, true
	if h.pass != nil {
		h.pass.survey, h.pass.place = true, mvcc.SurveyPlace{}
	}
	h.arm(retryPause)
}

// found takes a piece of the pass's survey. What the safepoint has reached is to be
// collected in this pass, the rest is remembered.
func (h *history) found(m *surveyed) {
	p := m.pass
	p.asked, p.place = false, m.place
	for i := range m.found {
		if g := &m.found[i]; g.From <= p.safepoint {
			p.list = append(p.list, *g)
		} else {
			h.add(g, 1)
		}
	}
	p.list = mvcc.SortGarbage(p.list)
	h.spent = m.spent
	p.cost += m.spent
}

// collectStep is the reminder to make the next step.
type collectStep struct{}

// beginPass begins a pass if this replica leads and there is anything to collect. The
// meta tablet keeps its history.
func (t *Tablet) beginPass() {
	if t.leading && t.id != MetaTabletID && t.frozen == nil {
		dropped := t.appliedCatalogue.LastDrop(t.descriptor, t.appliedSafepoint)
		t.history.begin(t.appliedSafepoint, dropped)
	}
}

// onCollectStep does the next thing of the pass under way: it makes a step, asks a read
// worker to survey on, or ends the pass. After a pass it begins the next if the safepoint
// has moved on.
func (t *Tablet) onCollectStep() {
	h := &t.history
	h.armed = false
	p := h.pass
	switch {
	// Nothing to do, or what is under way arms the next reminder when it ends.
	case p == nil || !t.leading || t.frozen != nil || t.failed != nil || h.inFlight ||
		(p.asked && len(p.list) == 0):
	// Nothing may be proposed now; it is looked at again soon.
	case t.drain.op != nil || noRoom(t.logs, t.store) != nil:
		h.arm(retryPause)
	case len(p.list) > 0:
		t.makeStep(p)
	case p.survey && !p.place.Done():
		p.asked = true
		t.reads.background.Submit(&surveyJob{
			shared: t.reads.Shared, pass: p, place: p.place, descriptor: t.descriptor,
			catalogue: t.appliedCatalogue,
		})
	default:
		if h.end(); p.safepoint < t.appliedSafepoint {
			t.beginPass()
		}
	}
	t.ready()
}

// makeStep evaluates and proposes one step. It does not count against the pipeline's
// limit, and may use the disk reserve, since it makes room.
func (t *Tablet) makeStep(p *pass) {
	h := &t.history
	begin := time.Now()
	snap := t.store.Snap()
	defer snap.Close()
	e := t.evaluate(snap)
	list := p.list[:min(len(p.list), stepGarbage)]
	step, done, err := mvcc.CollectCells(e.view, list,
		mvcc.CollectLimits{Entries: stepEntries, Bytes: stepBytes, Looked: stepLooked})
	if err != nil {
		t.fail(err)
		return
	}
	// CollectCells may stop early at a limit; the rest is left for the next step.
	p.list = p.list[done:]
	if len(step.Mutations) > 0 {
		h.inFlight = true
		e.proposal.collects = true
		if refusal := e.addEffects(step.Mutations); refusal != nil || !t.propose(e.proposal) {
			h.stepLost()
		}
	}
	for i := range step.Kept {
		h.keep(&step.Kept[i], p.safepoint)
	}
	h.spent = time.Since(begin)
	// Nothing is in flight whose visibility would arm the reminder.
	if !h.inFlight {
		h.armAfterPause(t.counters.operations(), t.appliedSafepoint)
	}
}

// keep remembers what a step has left. If the safepoint has reached it already, something
// else holds it back, and it is looked at again when the safepoint has moved.
func (h *history) keep(g *mvcc.Garbage, safepoint mvcc.Timestamp) {
	if g.From <= safepoint {
		g.From = safepoint + 1
	}
	if h.unknown {
		h.add(g, 1) // found by a survey
	} else {
		h.remember(g)
	}
}

// superfluous counts the deletions of entries that were counted as garbage. Values are
// not: they go with their records.
func superfluous(muts []mvcc.Mutation) (n int) {
	for i := range muts {
		if muts[i].Group != mvcc.GroupData {
			n++
		}
	}
	return n
}
