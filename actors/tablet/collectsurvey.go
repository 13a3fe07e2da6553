package tablet

import (
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// What one survey looks at and finds at most: a few milliseconds of a read worker.
const (
	surveyLooked = 4 << 10
	surveyFinds  = 1 << 10
)

// surveyJob looks for garbage on a read worker, in what is visible. What it finds is
// decided about in the tablet's turns.
type surveyJob struct {
	tablet     *Tablet
	pass       *pass
	place      mvcc.SurveyPlace
	descriptor *pb.TabletDescriptor
	catalogue  *memory.Catalogue
}

// surveyed is its result.
type surveyed struct {
	pass  *pass
	place mvcc.SurveyPlace
	found []mvcc.Garbage
	spent time.Duration
	err   error
}

func (j *surveyJob) run() {
	begin := time.Now()
	snap := j.tablet.store.Snap()
	defer snap.Close()
	view := surveyView{Snap: snap, Observers: j.catalogue.At(j.pass.safepoint)}
	out := &surveyed{pass: j.pass}
	for _, span := range wire.Spans(j.descriptor) { // there is one
		out.found, _, out.place, out.err = mvcc.Survey(view, span, j.place, surveyFinds,
			surveyLooked)
	}
	out.spent = time.Since(begin)
	j.tablet.root.Send(j.tablet.self, out)
}

// onSurveyed goes on with what a survey has found.
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

// surveyView is the view of a survey.
type surveyView struct {
	*store.Snap
	memory.Observers
}

var _ mvcc.SurveyView = surveyView{}
