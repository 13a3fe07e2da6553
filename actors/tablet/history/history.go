package history

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// History records a tablet's garbage, present and future, and the pass under way. The tablet
// executes the steps and reports their outcome. It starts over (Forget) with each leadership,
// split and step of a merge.
type History struct {
	garbage
	unknown  bool           // there may be any garbage until a survey is complete
	dropped  mvcc.Timestamp // the last drop of a table that a survey has covered; 0: none
	pass     *Pass
	inFlight bool // a step is proposed and not yet visible
	armed    bool // a reminder is under way, perhaps from before Forget
	// Duration of the last step, or of the last piece of a survey. The following pause is a
	// multiple of it.
	spent    time.Duration
	seen     uint64         // the tablet's operations as of the last Pause
	deleted  uint64         // entries deleted since Forget
	surveyed mvcc.Timestamp // safepoint of the last survey

	surveyCost time.Duration  // time that the last survey used of a read worker
	scratch    []mvcc.Garbage // for Note
	remind     func()         // sends a reminder to the tablet
}

// New returns an empty History. remind sends a reminder to the tablet, which then calls Due. It is
// called on any goroutine, and at most one reminder is under way.
func New(remind func()) History {
	h := History{remind: remind}
	h.Forget()
	return h
}

// Forget starts over. A reminder under way still arrives, and serves the next pass: a second one
// would double the rate of the steps.
func (h *History) Forget() {
	*h = History{garbage: newGarbage(), unknown: true, armed: h.armed, remind: h.remind}
}

// Pass collects the garbage reached by one safepoint: remembered garbage or, with survey set,
// everything found by a scan of the tablet.
type Pass struct {
	Safepoint mvcc.Timestamp // constant

	list    []mvcc.Garbage // to be examined; in the order of mvcc.SortGarbage
	survey  bool
	dropped mvcc.Timestamp // the last drop of one of the tablet's tables as of its start; 0: none
	asked   bool           // a piece of the survey is under way
	place   mvcc.SurveyPlace
	cost    time.Duration // time spent by the survey so far
}

// stepGarbage is the maximum number of pieces of garbage that one step examines.
const stepGarbage = 128

// StepLimits returns the limits of one step's deletions and reads. A step is part of a turn of
// the tablet, and takes about a millisecond.
func StepLimits() mvcc.CollectLimits {
	return mvcc.CollectLimits{Entries: 512, Bytes: 128 << 10, Looked: 512}
}

// Pauses between steps, as multiples of a step's duration: collection uses about a tenth of the
// tablet's time while there are other operations. It uses half of it while there are none, or
// while the safepoint is raised during a pass, since then more garbage is created than a tenth
// can delete.
const (
	// busyPause and idlePause are multiples of the last step's duration, which counts as at least
	// shortestStep. The pause is at most longestPause. retryPause is the delay of a retry when
	// nothing may be proposed, and after a step was lost.
	busyPause    = 9
	idlePause    = 1
	shortestStep = 100 * time.Microsecond
	longestPause = 200 * time.Millisecond
	retryPause   = 20 * time.Millisecond
)

// Forgotten garbage too little for a survey gets one after a time that depends on the cost of
// surveys, so that a small tablet retains no garbage, and a large one is not surveyed constantly.
const (
	// The safepoint's rise between such surveys is restTimes times the duration of the last one,
	// from shortestRest to LongestRest.
	restTimes    = 200
	shortestRest = 20 * time.Second

	// LongestRest is the rise of the safepoint after which a tablet with forgotten garbage is
	// surveyed again at the latest.
	LongestRest = time.Minute
)

// resurvey returns the rise of the safepoint after which the tablet is surveyed for little garbage.
func (h *History) resurvey() time.Duration {
	return min(max(shortestRest, restTimes*h.surveyCost), LongestRest)
}

// Entries returns the approximate number of entries to collect, now or at a later safepoint. It
// is 0 only if there are certainly none.
func (h *History) Entries() uint64 {
	if h.idle() {
		return 0
	}
	return uint64(max(h.waiting.total(), len(h.known), 1))
}

// idle reports whether there is certainly nothing to collect, now or later.
func (h *History) idle() bool { return !h.unknown && h.pass == nil && h.all && len(h.known) == 0 }

// Note records garbage left by the visible effects of a proposal.
func (h *History) Note(muts []mvcc.Mutation) {
	h.scratch = mvcc.GarbageOf(h.scratch[:0], muts)
	for i := range h.scratch {
		h.add(&h.scratch[i])
	}
	// scratch must not retain the proposal's strings.
	clear(h.scratch)
	if h.dropped != 0 && len(muts) > 0 && !muts[0].Delete {
		h.dropped = 0 // a late commit wrote after the survey of a drop: Begin surveys again
	}
}

// Begin begins a pass if the applied safepoint may have reached garbage and no pass is under way.
// dropped is the timestamp of the last drop of one of the tablet's tables, as of the safepoint; 0
// for none.
func (h *History) Begin(safepoint, dropped mvcc.Timestamp) {
	if h.pass != nil || safepoint == 0 {
		return
	}
	// Forgotten garbage is surveyed after a time whatever the histogram says: one cell in it
	// stands for many entries, and deletions are subtracted from the total, so its figures are
	// too low.
	late := !h.all && safepoint.Millis()-h.surveyed.Millis() > h.resurvey().Milliseconds()
	if h.unknown || late || h.surveyWorth(safepoint) || dropped > h.dropped {
		// Garbage written from here on is remembered; the survey finds the older garbage.
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

// Work is the tablet's work for a pass.
type Work int

// The kinds of work.
const (
	None   Work = iota // nothing, until the next reminder
	Delete             // execute a step
	Look               // have a read worker run Pass.Survey
	Finish             // call End
)

// Due returns the pass under way and its next work. It is called for each reminder.
func (h *History) Due() (*Pass, Work) {
	h.armed = false
	switch p := h.pass; {
	// A step or a piece of a survey that is under way arms the next reminder when it ends.
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

// Batch returns the garbage that the next step examines.
func (p *Pass) Batch() []mvcc.Garbage { return p.list[:min(len(p.list), stepGarbage)] }

// Looked removes the first n pieces of garbage from the pass, which a step has examined.
func (p *Pass) Looked(n int) { p.list = p.list[n:] }

// StepProposed records that the effects of a step are about to be proposed. StepMade or
// StepLost follows.
func (h *History) StepProposed() { h.inFlight = true }

// StepEnded records the duration of a step's evaluation, and sends the next reminder unless the
// step was proposed: then the tablet calls StepMade and Pause once it is visible.
func (h *History) StepEnded(spent time.Duration, operations uint64, safepoint mvcc.Timestamp) {
	h.spent = spent
	if !h.inFlight {
		h.Pause(operations, safepoint)
	}
}

// Deleted returns the number of entries that steps have deleted since the last Forget.
func (h *History) Deleted() uint64 { return h.deleted }

// Retry sends the next reminder soon: nothing may be proposed now.
func (h *History) Retry() { h.arm(retryPause) }

// arm sends a reminder after the delay, unless one is under way.
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

// Pause sends the next reminder after a pause in proportion to the duration of the last step or
// survey. The pause is short if the tablet is unused, by operations, the count of its operations
// so far, or if the pass is behind the safepoint.
func (h *History) Pause(operations uint64, safepoint mvcc.Timestamp) {
	times := time.Duration(busyPause)
	if operations == h.seen || (h.pass != nil && h.pass.Safepoint < safepoint) {
		times = idlePause
	}
	h.seen = operations
	h.arm(min(times*max(h.spent, shortestStep), longestPause))
}

// End ends the pass. After a survey no garbage is unknown: it is deleted, remembered or, where it
// does not fit into memory, counted.
func (h *History) End() {
	p := h.pass
	h.pass = nil
	if p.survey {
		h.unknown, h.surveyed, h.surveyCost = false, p.Safepoint, p.cost
		h.dropped = p.dropped
	}
	if h.idle() {
		h.waiting = histogram{} // drop the remaining counts, which are approximate
	}
}

// StepMade records that a step's deletions are visible.
func (h *History) StepMade(muts []mvcc.Mutation) {
	h.inFlight = false
	h.deleted += uint64(len(muts))
	// Garbage that a survey found due was never counted.
	if !h.unknown {
		h.waiting.take(superfluous(muts))
	}
}

// StepLost records that a step was lost. Its garbage still exists but is no longer remembered, so
// the pass starts again with a survey from the beginning.
func (h *History) StepLost() {
	h.inFlight, h.unknown = false, true
	if h.pass != nil {
		h.pass.survey, h.pass.place = true, mvcc.SurveyPlace{}
	}
	h.arm(retryPause)
}

// Found adds the garbage found by a piece of a survey and reports whether the piece belongs to the
// present pass: others are ignored. Garbage reached by the safepoint is collected in this pass, the
// rest is remembered.
func (h *History) Found(m *Surveyed) bool {
	p := m.pass
	if h.pass != p { // p is of another leadership, or from before a split
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

// Keep remembers the garbage that a step of the pass has left. If the safepoint has already reached
// it, something else holds it back, and it is retried after the safepoint has advanced.
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
