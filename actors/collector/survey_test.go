package collector

import (
	"context"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Leaders implements Overview, omitting the tablets that the test has hidden.
func (w *world) Leaders(context.Context) (out []*pb.StatusResponse, err error) {
	out = append(out, &pb.StatusResponse{ // meta's tablet, and a replica that does not lead
		Leader: true, Tablet: &pb.TabletDescriptor{
			TabletId: 1, EndTable: uint32(mvcc.FirstUserTable),
		},
	}, &pb.StatusResponse{Tablet: w.tablets[0].d})
	for i := len(w.tablets) - 1; i >= 0; i-- { // in reverse order
		if f := w.tablets[i]; !f.hidden {
			out = append(out, &pb.StatusResponse{
				Tablet: f.d, Leader: true, Bound: f.bound, Safepoint: f.safepoint,
				Garbage: f.garbage,
			})
		}
	}
	return out, nil
}

// TestSurvey: with an overview of all tablets none is sent a request while there is no garbage;
// garbage is found in the overview, or by a request where the overview has a gap.
func TestSurvey(t *testing.T) {
	w := newWorld(t, "f", "p")
	c := newCycle(t, w)
	c.cfg.Overview = w
	before := w.ops
	c.turn(t.Context())
	if n := w.ops - before; n > 2 { // the record and a timestamp
		t.Errorf("%d operations with nothing to collect", n)
	}
	for _, i := range []int{0, 1, 2} {
		w.tablets[i].garbage, w.tablets[i].hidden, w.sent = 1, i > 0, nil
		w.now += 2 * history.Milliseconds()
		c.turn(t.Context())
		if len(w.sent) == 0 {
			t.Errorf("garbage in tablet %d, hidden=%v, was not seen", i, w.tablets[i].hidden)
		}
		w.tablets[i].garbage, w.tablets[i].hidden = 0, false
	}
}
