package history

import (
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Limits of one survey.
const (
	// Maximum number of entries that one survey examines, and of pieces of garbage that it returns:
	// a few milliseconds of a read worker.
	surveyLooked = 4 << 10
	surveyFinds  = 1 << 10
)

// Survey returns the job that searches the visible state for garbage, starting at the end of the
// pass's last survey. The tablet decides on newer state what to collect. send sends the tablet the
// result, a *Surveyed.
func (p *Pass) Survey(st *store.Store, d *pb.TabletDescriptor, catalogue *memory.Catalogue,
	send func(any)) (job func()) {
	p.asked = true
	place := p.place // of the pass itself the job reads only the Safepoint
	return func() {
		begin := time.Now()
		snap := st.Snap()
		defer snap.Close()
		view := surveyView{Snap: snap, Observers: catalogue.At(p.Safepoint)}
		out := &Surveyed{pass: p}
		// Durable timers (mvcc.TimerTable) in a tablet that begins in another table are not
		// surveyed until they have a tablet of their own.
		out.found, _, out.place, out.Err = mvcc.Survey(view, wire.SpanOf(d), place, surveyFinds,
			surveyLooked)
		out.spent = time.Since(begin)
		send(out)
	}
}

// Surveyed is the result of a survey's piece, for Found. Err is the error of a store that could not be
// read.
type Surveyed struct {
	Err error

	pass  *Pass
	place mvcc.SurveyPlace // where the next one begins
	found []mvcc.Garbage
	spent time.Duration
}

// surveyView is the input of a survey: a Snap, and the observers of each column in the catalogue at
// the pass's safepoint.
type surveyView struct {
	*store.Snap
	memory.Observers
}

var _ mvcc.SurveyView = surveyView{}
