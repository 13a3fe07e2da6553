package history

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// History is what a leader knows of its tablet's history: what is garbage or will be, and the
// pass under way. The tablet makes the steps and reports what has become of them. It starts
// over (Forget) with each leadership, split and step of a merge.
type History struct {
	garbage
	unknown  bool           // the tablet was not surveyed since Forget: there may be anything
	dropped  mvcc.Timestamp // the last drop of one of its tables that a survey has covered; 0: none
	pass     *Pass
	inFlight bool // a step is proposed and not yet visible
	armed    bool // a reminder for the next step is under way, perhaps from before Forget
	// What the last step, or the last piece of a survey, took. The pause after it is a
	// multiple of this.
	spent    time.Duration
	seen     uint64         // the tablet's operations when the last step was made
	deleted  uint64         // entries, since this replica leads
	surveyed mvcc.Timestamp // the safepoint of the last survey

	surveyCost time.Duration  // what the last survey took of a read worker
	scratch    []mvcc.Garbage // Note's
	remind     func()         // sends the tablet a reminder
}

// New returns a History that knows nothing. remind sends the tablet a reminder, upon which it
// calls Due. It is called on any goroutine, and at most one reminder is on its way.
func New(remind func()) History {
	h := History{remind: remind}
	h.Forget()
	return h
}

// Forget starts over, with nothing known. A reminder under way still comes, and is that of
// the next pass: a second one beside it would double the rate of the steps.
func (h *History) Forget() {
	*h = History{garbage: newGarbage(), unknown: true, armed: h.armed, remind: h.remind}
}

// Pass collects what one safepoint has reached: what is remembered, or, with survey set, all
// that a walk over the tablet finds.
type Pass struct {
	Safepoint mvcc.Timestamp // never changes

	list    []mvcc.Garbage // to be looked at; in the order of mvcc.SortGarbage
	survey  bool
	dropped mvcc.Timestamp // the last drop of one of the tablet's tables when it began; 0: none
	asked   bool           // a read worker looks for more
	place   mvcc.SurveyPlace
	cost    time.Duration // of the survey so far
}

// stepGarbage is how many pieces of garbage one step looks at.
const stepGarbage = 128

// StepLimits bounds what one step deletes and reads. A step is part of a turn of the tablet, and
// about a millisecond long.
func StepLimits() mvcc.CollectLimits {
	return mvcc.CollectLimits{Entries: 512, Bytes: 128 << 10, Looked: 512}
}

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
	// The time between such surveys is restTimes what the last one took, from shortestRest to
	// LongestRest.
	restTimes    = 200
	shortestRest = 20 * time.Second

	// LongestRest is the longest time between two surveys of a tablet with forgotten garbage.
	LongestRest = time.Minute
)

// resurvey returns how far the safepoint must move before the tablet is surveyed for a
// little garbage.
func (h *History) resurvey() time.Duration {
	return min(max(shortestRest, restTimes*h.surveyCost), LongestRest)
}

// Entries returns about how many entries wait to be collected, now or at a later
// safepoint. It is 0 only if there are surely none.
func (h *History) Entries() uint64 {
	if h.idle() {
		return 0
	}
	return uint64(max(h.waiting.total(), len(h.known), 1))
}

// idle reports whether there is surely nothing to collect, now or later.
func (h *History) idle() bool { return !h.unknown && h.pass == nil && h.all && len(h.known) == 0 }

// Note remembers what the effects of a proposal, visible now, have made superfluous.
func (h *History) Note(muts []mvcc.Mutation) {
	h.scratch = mvcc.GarbageOf(h.scratch[:0], muts)
	for i := range h.scratch {
		h.add(&h.scratch[i])
	}
	// Scratch must not keep the proposal's strings in memory.
	clear(h.scratch)
	if h.dropped != 0 && len(muts) > 0 && !muts[0].Delete {
		h.dropped = 0 // a commit that came late: its record goes as well
	}
}

// Begin begins a pass if the applied safepoint has reached anything and no pass is under
// way. dropped is when the last of the tablet's tables was dropped, as of the safepoint; 0 if
// none was.
func (h *History) Begin(safepoint, dropped mvcc.Timestamp) {
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
		h.pass = &Pass{Safepoint: safepoint, survey: true, dropped: dropped}
	} else if due := h.takeDue(safepoint); len(due) > 0 {
		h.pass = &Pass{Safepoint: safepoint, list: due}
	} else {
		return
	}
	h.arm(0)
}

// Work is what the tablet has to do for a pass.
type Work int

// What there is to do.
const (
	None   Work = iota // nothing, until the next reminder
	Delete             // make a step
	Look               // have a read worker run Pass.Survey
	Finish             // call End
)

// Due returns the pass under way and what to do for it. It is called upon a reminder.
func (h *History) Due() (*Pass, Work) {
	h.armed = false
	switch p := h.pass; {
	// What is under way arms the next reminder when it ends.
	case p == nil || h.inFlight || (p.asked && len(p.list) == 0):
		return p, None
	case len(p.list) > 0:
		return p, Delete
	case p.survey && !p.place.Done():
		return p, Look
	default:
		return p, Finish
	}
}

// Batch returns what the next step looks at.
func (p *Pass) Batch() []mvcc.Garbage { return p.list[:min(len(p.list), stepGarbage)] }

// Looked removes the first n pieces of garbage from the pass: a step has looked at them.
func (p *Pass) Looked(n int) { p.list = p.list[n:] }

// StepProposed records that the effects of a step are about to be proposed. StepMade or
// StepLost follows.
func (h *History) StepProposed() { h.inFlight = true }

// StepEnded records the time that the evaluation of a step took, and sends the next reminder
// unless StepMade will.
func (h *History) StepEnded(spent time.Duration, operations uint64, safepoint mvcc.Timestamp) {
	h.spent = spent
	if !h.inFlight {
		h.Pause(operations, safepoint)
	}
}

// Deleted returns the number of entries that steps have deleted since this replica leads.
func (h *History) Deleted() uint64 { return h.deleted }

// Retry sends the next reminder soon: nothing may be proposed now.
func (h *History) Retry() { h.arm(retryPause) }

// arm sends a reminder after the time, unless one is on its way.
func (h *History) arm(after time.Duration) {
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

// Pause sends the next reminder after a pause in proportion to what the last step or survey
// took. The pause is short if nobody uses the tablet, by operations, the count of its
// operations so far, or if the pass is behind the safepoint.
func (h *History) Pause(operations uint64, safepoint mvcc.Timestamp) {
	times := time.Duration(busyPause)
	if operations == h.seen || (h.pass != nil && h.pass.Safepoint < safepoint) {
		times = idlePause
	}
	h.seen = operations
	h.arm(min(times*max(h.spent, shortestStep), longestPause))
}

// End ends the pass. A survey that came to its end has found all there was.
func (h *History) End() {
	p := h.pass
	h.pass = nil
	if p.survey {
		h.unknown, h.surveyed, h.surveyCost = false, p.Safepoint, p.cost
		h.dropped = p.dropped
	}
	if h.idle() {
		h.waiting = histogram{} // it counts nearly, not exactly
	}
}

// StepMade records that a step's deletions are visible.
func (h *History) StepMade(muts []mvcc.Mutation) {
	h.inFlight = false
	h.deleted += uint64(len(muts))
	// What a survey finds due was never counted as waiting.
	if !h.unknown {
		h.waiting.take(superfluous(muts))
	}
}

// StepLost records that a step was not made. What it was to delete is still there but no
// longer remembered, so the pass begins again with a survey from the start.
func (h *History) StepLost() {
	h.inFlight, h.unknown = false, true
	if h.pass != nil {
		h.pass.survey, h.pass.place = true, mvcc.SurveyPlace{}
	}
	h.arm(retryPause)
}

// Found adds what a piece of a survey has found, and reports whether it is one of the pass
// under way: others count for nothing. What the safepoint has reached is collected in this
// pass, the rest is remembered.
func (h *History) Found(m *Surveyed) bool {
	p := m.pass
	if h.pass != p { // of another leadership, or from before a split
		return false
	}
	p.asked, p.place = false, m.place
	for i := range m.found {
		if g := &m.found[i]; g.From <= p.Safepoint {
			p.list = append(p.list, *g)
		} else {
			h.add(g)
		}
	}
	p.list = mvcc.SortGarbage(p.list)
	h.spent = m.spent
	p.cost += m.spent
	return true
}

// Keep remembers what a step of the pass has left. If the safepoint has reached it already,
// something else holds it back, and it is looked at again when the safepoint has moved.
func (h *History) Keep(p *Pass, left []mvcc.Garbage) {
	for i := range left {
		g := &left[i]
		if g.From <= p.Safepoint {
			g.From = p.Safepoint + 1
		}
		if h.unknown {
			h.add(g) // found by a survey
		} else {
			h.remember(g)
		}
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
