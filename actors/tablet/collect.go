package tablet

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// collection is the leader's deletion of history that the safepoint has passed (design
// section 4, invariant 11). It goes by passes, of steps: each is evaluated in a turn of
// its own like any mutation, on the newest state with the effects in flight laid over it,
// and proposed as an entry of its own; the next one begins after it is visible. A tablet
// with nothing to collect does nothing.
type collection struct {
	garbage
	unknown  bool // nobody has surveyed the tablet since this replica leads: there may be anything
	dropped  bool // the tablet's table is dropped, and was surveyed as such
	pass     *pass
	inFlight bool // a step is proposed and not yet visible
	armed    bool // a reminder for the next step is under way
	spent    time.Duration
	seen     uint64         // the tablet's operations when the last step was made
	deleted  uint64         // entries, since this replica leads
	surveyed mvcc.Timestamp // the safepoint of the last survey

	surveyCost time.Duration // what the last survey took of a read worker
}

// pass collects what a safepoint has reached: what is remembered, or, with a survey, what there is.
type pass struct {
	safepoint mvcc.Timestamp
	list      []mvcc.Garbage // to be looked at; in the order of mvcc.SortGarbage
	survey    bool
	dropped   bool // the tablet's table was dropped when it began
	asked     bool // a read worker looks for more
	place     mvcc.SurveyPlace
	cost      time.Duration // of the survey so far
}

// A step's bounds. It is a part of a turn of the tablet, and about a millisecond long.
const (
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
	busyPause    = 9
	idlePause    = 1
	shortestStep = 100 * time.Microsecond
	longestPause = 200 * time.Millisecond
	splitPause   = 20 * time.Millisecond
)

// What is not remembered, and too little to be worth a survey, gets one after a time that
// depends on what surveys cost: so that a small tablet leaves nothing lying about, and a
// large one is not surveyed all the time.
const (
	shortestRest = 20 * time.Second
	longestRest  = time.Minute
	restTimes    = 200 // as long as the last survey took
)

// resurvey is how far the safepoint moves before the next survey for a little.
func (c *collection) resurvey() time.Duration {
	return min(max(shortestRest, restTimes*c.surveyCost), longestRest)
}

func newCollection() collection { return collection{garbage: newGarbage(), unknown: true} }

// garbageWaiting is about how many entries wait to be collected, now or at a later safepoint.
func (t *Tablet) garbageWaiting() uint64 {
	c := &t.collection
	if !t.leading || t.id == MetaTabletID || c.idle() {
		return 0
	}
	return uint64(max(c.waiting.total(), len(c.known), 1))
}

// idle reports whether there is surely nothing to collect, now or later.
func (c *collection) idle() bool { return !c.unknown && c.pass == nil && c.all && len(c.known) == 0 }

// noteGarbage remembers what the effects of a proposal, now visible, have made superfluous.
func (t *Tablet) noteGarbage(muts []mvcc.Mutation) {
	c := &t.collection
	t.scratch = mvcc.GarbageOf(t.scratch[:0], muts)
	for i := range t.scratch {
		c.add(&t.scratch[i], 1)
	}
	clear(t.scratch)
	if c.dropped && len(muts) > 0 && !muts[0].Delete {
		c.dropped = false // a commit that came late: its record goes as well
	}
}

// beginPass begins a pass if the applied safepoint has reached anything.
func (t *Tablet) beginPass() {
	c := &t.collection
	safepoint := t.appliedSafepoint
	if !t.leading || c.pass != nil || safepoint == 0 || t.id == MetaTabletID {
		return
	}
	// What is forgotten counts for this whatever the histogram says: one cell stands for
	// many entries, and those that are deleted are counted off all that wait.
	late := !c.all && safepoint.Millis()-c.surveyed.Millis() > c.resurvey().Milliseconds()
	if c.unknown || late || c.surveyWorth(safepoint) || (t.droppedHere() && !c.dropped) {
		c.garbage = newGarbage() // what is written from here on is remembered, what was before is found
		c.unknown = true
		c.pass = &pass{safepoint: safepoint, survey: true, dropped: t.droppedHere()}
	} else if due := c.takeDue(safepoint); len(due) > 0 {
		c.pass = &pass{safepoint: safepoint, list: due}
	} else {
		return
	}
	t.armStep(0)
}

// droppedHere reports whether the tablet's table is dropped as of the safepoint.
func (t *Tablet) droppedHere() bool {
	return t.appliedCatalogue.droppedAt(mvcc.TableID(t.descriptor.StartTable), t.appliedSafepoint)
}

// collectStep is the reminder to make the next step.
type collectStep struct{}

func (t *Tablet) armStep(after time.Duration) {
	if t.collection.armed {
		return
	}
	t.collection.armed = true
	self, root := t.self, t.root
	if after == 0 {
		root.Send(self, &collectStep{})
		return
	}
	time.AfterFunc(after, func() { root.Send(self, &collectStep{}) })
}

// pause is how long to wait after what the last step, or survey, took.
func (t *Tablet) pause() time.Duration {
	c := &t.collection
	operations := t.counters.reads + t.counters.mutations
	times := time.Duration(busyPause)
	if operations == c.seen || (c.pass != nil && c.pass.safepoint < t.appliedSafepoint) {
		times = idlePause
	}
	c.seen = operations
	return min(times*max(c.spent, shortestStep), longestPause)
}

// onCollectStep makes a step of the pass under way, or asks for more to do, or ends the pass.
func (t *Tablet) onCollectStep() {
	c := &t.collection
	c.armed = false
	p := c.pass
	switch {
	case p == nil || !t.leading || t.failed != nil || c.inFlight || (p.asked && len(p.list) == 0):
	case t.exclusive != nil || noRoom(t.logs, t.store) != nil:
		t.armStep(splitPause)
	case len(p.list) > 0:
		t.makeStep(p)
	case p.survey && !p.place.Done():
		p.asked = true
		t.background.submit(&surveyJob{tablet: t, pass: p, place: p.place, descriptor: t.descriptor, catalogue: t.appliedCatalogue})
	default:
		t.endPass(p)
	}
	t.ready()
}

// endPass ends the pass, and begins another one if the safepoint has moved on.
func (t *Tablet) endPass(p *pass) {
	c := &t.collection
	c.pass = nil
	if p.survey {
		c.unknown, c.surveyed, c.surveyCost = false, p.safepoint, p.cost
		c.dropped = p.dropped
	}
	if c.idle() {
		c.waiting = histogram{} // it counts nearly, not exactly
	}
	if p.safepoint < t.appliedSafepoint {
		t.beginPass()
	}
}

// makeStep evaluates and proposes one step. It needs no room in the pipeline, and takes
// none from others; it may use the disk reserve, since it makes room.
func (t *Tablet) makeStep(p *pass) {
	c := &t.collection
	begin := time.Now()
	snap := t.store.Snap()
	defer snap.Close()
	e := &evaluation{Tablet: t, view: &evalView{Snap: snap, tablet: t}, proposal: t.newProposal()}
	list := p.list[:min(len(p.list), stepGarbage)]
	step, done, err := mvcc.CollectCells(e.view, list, mvcc.CollectLimits{Entries: stepEntries, Bytes: stepBytes, Looked: stepLooked})
	if err != nil {
		t.fail(err)
		return
	}
	p.list = p.list[done:]
	if len(step.Mutations) > 0 {
		c.inFlight = true
		e.proposal.collects = true
		if refusal := e.take(step.Mutations); refusal != nil || !t.propose(e.proposal) {
			t.lostStep()
		}
	}
	for i := range step.Kept {
		c.keep(&step.Kept[i], p.safepoint)
	}
	c.spent = time.Since(begin)
	if !c.inFlight {
		t.armStep(t.pause())
	}
}

// keep remembers what a step has left. What the safepoint has reached already is held by
// something: it is looked at again when the safepoint has moved.
func (c *collection) keep(g *mvcc.Garbage, safepoint mvcc.Timestamp) {
	if g.From <= safepoint {
		g.From = safepoint + 1
	}
	if c.unknown {
		c.add(g, 1) // found by a survey
	} else {
		c.remember(g)
	}
}

// collected takes note of a proposal that is visible: a step goes on, and a raised
// safepoint begins a pass.
func (t *Tablet) collected(p *proposal) {
	if p.command.Safepoint != 0 || p.command.Catalogue != nil {
		t.beginPass()
	}
	if !p.collects {
		return
	}
	c := &t.collection
	c.inFlight = false
	c.deleted += uint64(len(p.muts))
	if !c.unknown {
		c.waiting.take(superfluous(p.muts))
	}
	t.armStep(t.pause())
}

// lostStep: what the step was to delete is still there, and forgotten. A survey will find it.
func (t *Tablet) lostStep() {
	c := &t.collection
	c.inFlight, c.unknown = false, true
	if c.pass != nil {
		c.pass.survey, c.pass.place = true, mvcc.SurveyPlace{}
	}
	t.armStep(splitPause)
}

// superfluous counts the entries among deletions that were counted as garbage: values go
// with their records.
func superfluous(muts []mvcc.Mutation) (n int) {
	for i := range muts {
		if muts[i].Group != mvcc.GroupData {
			n++
		}
	}
	return n
}
