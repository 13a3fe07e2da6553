package tablet

import (
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file has the part of the collection that runs on a read worker: a survey, which
// walks over a piece of the tablet and looks for garbage. history submits one at a time.
// Its result comes back to the tablet as a message and counts only if the same pass is
// still under way.

// Limits of one survey.
const (
	// Entries that one survey looks at, and pieces of garbage that it returns, at most: a
	// few milliseconds of a read worker.
	surveyLooked = 4 << 10
	surveyFinds  = 1 << 10
)

// surveyJob looks for garbage in what is visible, from place on. The tablet's turns
// decide what to do about what it finds, against newer state.
type surveyJob struct {
	shared     *reads.Shared
	pass       *pass
	place      mvcc.SurveyPlace
	descriptor *pb.TabletDescriptor
	catalogue  *memory.Catalogue
}

// surveyed is the result of a surveyJob. place is where the next one begins.
type surveyed struct {
	pass  *pass
	place mvcc.SurveyPlace
	found []mvcc.Garbage
	spent time.Duration
	err   error
}

// Run surveys one piece on a read worker and sends the tablet what it found.
func (j *surveyJob) Run() {
	begin := time.Now()
	snap := j.shared.Store.Snap()
	defer snap.Close()
	view := surveyView{Snap: snap, Observers: j.catalogue.At(j.pass.safepoint)}
	out := &surveyed{pass: j.pass}
	for _, span := range wire.Spans(j.descriptor) { // there is one
		out.found, _, out.place, out.err = mvcc.Survey(view, span, j.place, surveyFinds,
			surveyLooked)
	}
	out.spent = time.Since(begin)
	j.shared.Send(out)
}

// onSurveyed takes the result of a survey and goes on with the pass after a pause.
func (t *Tablet) onSurveyed(m *surveyed) {
	h := &t.history
	switch {
	case h.pass != m.pass: // another leadership's, or from before a split
	case m.err != nil:
		t.fail(m.err)
	default:
		h.found(m)
		h.armAfterPause(t.counters.operations(), t.appliedSafepoint)
	}
}

// surveyView is what a survey reads: a Snap, and who observes which column by the
// catalogue at the pass's safepoint.
type surveyView struct {
	*store.Snap
	memory.Observers
}

var _ mvcc.SurveyView = surveyView{}
