package tablet

import (
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// startBy is start with a deadline.
func (r *rig) startBy(tablet uint64, deadline time.Time, req *pb.TabletRequest) <-chan result {
	r.tb.Helper()
	answer := make(chan result, 1)
	if err := r.port(tablet).Tell(req, deadline, false, func(a result) {
		answer <- a
	}); err != nil {
		r.tb.Fatal(err)
	}
	return answer
}

// TestLateOperationsAreDropped: an operation whose deadline has passed when the tablet evaluates it
// is answered as surely not done, and is not done, whether it arrived late or waited for the
// pipeline or a reservation.
func TestLateOperationsAreDropped(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	past := time.Now().Add(-time.Second)
	answers := map[string]<-chan result{
		"a read":             r.startBy(2, past, getOf(r.take(1), "a")),
		"a first read":       r.startBy(2, past, getOf(0, "a")),
		"a prewrite":         r.startBy(2, past, prewriteOf(r.take(1), "a", "1")),
		"a one-phase commit": r.startBy(2, past, onePhaseOf(r.take(1), put("b", "1"))),
	}
	release := r.hold()
	// in flight: later operations are held or wait for its reservation
	holder := r.start(2, onePhaseOf(r.take(1), put("x", "1")))
	r.until(2, "it is proposed", func(s *pb.StatusResponse) bool { return s.Proposals >= 1 })
	// as many as that one: it need not wait, and all others must
	behind := r.start(2, prewriteOf(r.take(1), "y", "1"))
	r.until(2, "it is proposed as well", func(s *pb.StatusResponse) bool {
		return s.Proposals >= 2
	})
	soon := time.Now().Add(20 * time.Millisecond)
	answers["a prewrite that waits for the pipeline"] = r.startBy(2, soon,
		prewriteOf(r.take(1), "c", "1"))
	answers["a one-phase commit that waits for the pipeline"] = r.startBy(2, soon,
		onePhaseOf(r.take(1), put("d", "1")))
	answers["a read that waits for a reservation"] = r.startBy(2, soon, getOf(r.take(1), "x"))
	r.until(2, "their time is over", func(*pb.StatusResponse) bool {
		return time.Now().After(soon)
	})
	release()
	await(t, holder)
	await(t, behind)
	for what, answer := range answers {
		if a := answered(t, what, answer); a.Err != nil ||
			a.Value.GetError().GetCode() != pb.Error_CODE_NOT_PROPOSED {
			t.Errorf("%s is answered %v, %v, want NOT_PROPOSED", what, a.Value, a.Err)
		}
	}
	r.do(2, onePhaseOf(r.take(1), put("after", "1"))) // behind everything still under way
	got := r.do(2, getOf(r.take(1), "a", "b", "c", "d")).GetGet()
	for i, v := range got.GetResults() {
		if v.GetFound() || v.GetLock() != nil {
			t.Errorf("DROPPED-DONE: row %c has %v", 'a'+i, v)
		}
	}
}
