package tablet

import (
	"fmt"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// spareOf is a one-phase commit that requests a spare timestamp.
func spareOf(req *pb.TabletRequest) *pb.TabletRequest {
	req.GetOnePhase().Spare = true
	return req
}

// TestSpareTimestamps: commits of one batch request all their timestamps together. No two
// timestamps are the same, commit or spare, whether the oracle answers with a message or without.
// Catches BROKEN=spare_shared.
func TestSpareTimestamps(t *testing.T) {
	for name, near := range map[string]bool{"by message": false, "without message": true} {
		r := newRig(t, store.Options{InMemory: true})
		r.near.Store(near)
		asked := r.asking()
		if near {
			asked = nil
		}
		var answers []<-chan result
		for i := range 11 {
			req := onePhaseOf(r.take(1), put(fmt.Sprint(i), "1"))
			if i%2 == 0 {
				req = spareOf(req)
			}
			answers = append(answers, r.start(2, req))
		}
		taken := map[uint64]bool{}
		for i := 0; i < len(answers); {
			select {
			case grant := <-asked:
				grant(nil)
			case a := <-answers[i]:
				got := a.Value.GetMutation()
				if got.GetStatus() != pb.Status_STATUS_OK {
					t.Fatalf("%s: answered %v, %v", name, a.Value, a.Err)
				}
				if wants := i%2 == 0; wants != (got.SpareTs > got.CommitTs) {
					t.Errorf("%s: commit %d: %v", name, i, got)
				}
				for _, ts := range []uint64{got.CommitTs, got.SpareTs} {
					if ts != 0 && taken[ts] {
						t.Errorf("SPARE-SHARED: %s: timestamp %d twice", name, ts)
					}
					taken[ts] = true
				}
				i++
			}
		}
	}
}

// TestNoSpareOfARefusal: only a commit returns a spare timestamp, and a copy of it later does not.
func TestNoSpareOfARefusal(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	early, start := r.take(1), r.take(1)
	if got := r.do(2, spareOf(onePhaseOf(start, put("a", "1")))).GetMutation(); got.SpareTs == 0 {
		t.Fatalf("no spare timestamp: %v", got)
	}
	for want, req := range map[pb.Status]*pb.TabletRequest{
		pb.Status_STATUS_COMMITTED: onePhaseOf(start, put("a", "1")),
		pb.Status_STATUS_CONFLICT:  onePhaseOf(early, put("a", "2")),
	} {
		got := r.do(2, spareOf(req)).GetMutation()
		if got.Status != want || got.SpareTs != 0 {
			t.Errorf("answered %v, want %v without a spare timestamp", got, want)
		}
	}
}
