package tablet

import (
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
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
	catalogue  *catalogue
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
	view := surveyView{Snap: snap, observers: observers{j.catalogue, j.pass.safepoint}}
	out := &surveyed{pass: j.pass}
	for _, span := range tableSpans(j.descriptor) { // there is one
		out.found, _, out.place, out.err = mvcc.Survey(view, span, j.place, surveyFinds, surveyLooked)
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

// observers is what collection needs of a catalogue.
type observers struct {
	catalogue *catalogue
	safepoint mvcc.Timestamp
}

// Acks implements mvcc.Observers.
func (o observers) Acks(t mvcc.TableID, column string) []string {
	return o.catalogue.acks[columnKey{t, column}]
}

// AckOf implements mvcc.Observers.
func (o observers) AckOf(t mvcc.TableID, observer string) (string, bool) {
	column, ok := o.catalogue.watched[columnKey{t, observer}]
	return column, ok
}

// Dropped implements mvcc.Observers.
func (o observers) Dropped(t mvcc.TableID) bool { return o.catalogue.droppedAt(t, o.safepoint) }

// surveyView is the view of a survey.
type surveyView struct {
	*store.Snap
	observers
}

var _ mvcc.SurveyView = surveyView{}
