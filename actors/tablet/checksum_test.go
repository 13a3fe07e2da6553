package tablet

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

func checksumOf(id uint64) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Checksum{Checksum: &pb.ChecksumRequest{Id: id}}}
}

// awaitChecksum polls until the replica has the result.
func (r *rig) awaitChecksum(tablet, id uint64) *pb.ChecksumResponse {
	r.tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(
		time.Millisecond) {
		if c := r.do(tablet, checksumOf(id)).GetChecksum(); c.Done {
			return c
		}
	}
	r.tb.Fatal("no checksum within 20 s")
	return nil
}

// A checksum is of the state as of its entry: it differs from the one before only if rows were
// written in between.
func TestChecksumOfItsEntry(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	want := r.awaitChecksum(2, r.do(2, checksumOf(0)).GetChecksum().GetId())
	if want.Entries == 0 {
		t.Fatal("nothing was counted")
	}
	again := r.awaitChecksum(2, r.do(2, checksumOf(0)).GetChecksum().GetId())
	if again.Checksum != want.Checksum || again.Index <= want.Index || again.Id == want.Id {
		t.Fatalf("%v after %v", again, want)
	}
	r.do(2, onePhaseOf(r.take(1), put("b", "2")))
	other := r.awaitChecksum(2, r.do(2, checksumOf(0)).GetChecksum().GetId())
	if other.Checksum == want.Checksum || other.Entries <= want.Entries {
		t.Fatalf("another row, but %v after %v", other, want)
	}
}

// Results of the last few checksums are kept; an unknown one is reported as such, so that the
// caller stops polling.
func TestChecksumsForget(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	var ids, at []uint64
	for i := range keptChecksums + 1 {
		r.do(2, onePhaseOf(r.take(1), put(fmt.Sprint(i), "1")))
		began := r.do(2, checksumOf(0)).GetChecksum()
		ids, at = append(ids, began.GetId()), append(at, began.GetIndex())
		if c := r.awaitChecksum(2, ids[i]); c.Index != at[i] || c.Applied < c.Index {
			t.Fatalf("asked for at entry %d: %v", at[i], c)
		}
	}
	if c := r.do(2, checksumOf(ids[0])).GetChecksum(); c.Done || c.Computing || c.Applied < at[0] ||
		at[0] == 0 {
		t.Errorf("the first of %d, at entry %d, is still known, or may yet come: %v", len(ids),
			at[0], c)
	}
	if c := r.do(2, checksumOf(ids[1])).GetChecksum(); !c.Done {
		t.Error("the second is forgotten")
	}
	r.sums.mu.Lock() // a pending one
	r.sums.pending[checksumName{2, 77}] = true
	r.sums.mu.Unlock()
	if c := r.do(2, checksumOf(77)).GetChecksum(); c.Done || !c.Computing {
		t.Errorf("one that is being computed: %v", c)
	}
	if c := r.do(2, checksumOf(12345)).GetChecksum(); c.Done || c.Id != 12345 {
		t.Errorf("one that nobody asked for: %v", c)
	}
}
