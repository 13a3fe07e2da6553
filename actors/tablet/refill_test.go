package tablet

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// oldest queries the head of the queue of column c.
func oldest(r *rig, tablet uint64, most uint32) *pb.WalkResponse {
	r.tb.Helper()
	return r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: &pb.WalkRequest{
		Group: uint32(mvcc.GroupNotify), Table: 16, Column: []byte("c"), Limit: most, Oldest: true,
	}}}).GetWalk()
}

// workOff clears the heads of the queue until so many rows were handed out, and returns how often
// each was.
func workOff(r *rig, tablet uint64, rows int) map[string]int {
	r.tb.Helper()
	seen := map[string]int{}
	deadline := time.Now().Add(20 * time.Second)
	for len(seen) < rows {
		if time.Now().After(deadline) {
			r.tb.Fatalf("LOST: %d of %d rows were handed out", len(seen), rows)
		}
		w := oldest(r, tablet, 4)
		if !w.Ordered {
			continue // it is still counted
		}
		for _, e := range w.Entries {
			seen[string(e.Cell.Row)]++
			r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{ClearNotify: &pb.ClearNotifyRequest{
				Cell: e.Cell, UpTo: uint64(r.take(1)),
			}}})
		}
	}
	return seen
}

// TestQueueIsRefilled: a queue with a small capacity hands out every pending row exactly once, also
// rows that arrive during it, and also when a leader starts with more rows than the capacity.
func TestQueueIsRefilled(t *testing.T) {
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprint("opened anew ", anew), func(t *testing.T) {
			r := newRig(t, store.Options{InMemory: true})
			reopen(t, r, 2, 8)
			observe(r, 2)
			const rows = 100
			notify := func(row string) { r.do(2, onePhaseOf(r.take(1), put(row, "v"))) }
			for i := range rows {
				notify(fmt.Sprintf("r%03d", i))
			}
			if anew {
				reopen(t, r, 2, 8)
			}
			// A part of the rows, then more, some before and some behind those already read.
			seen := workOff(r, 2, rows/2)
			for i := range 10 {
				notify(fmt.Sprintf("a%03d", i))
				notify(fmt.Sprintf("z%03d", i))
			}
			for row, n := range workOff(r, 2, rows+20-len(seen)) {
				seen[row] += n
			}
			for row, n := range seen {
				if n != 1 {
					t.Errorf("row %s was handed out %d times", row, n)
				}
			}
			if w := oldest(r, 2, 4); len(seen) != rows+20 || len(w.Entries) > 0 {
				t.Errorf("%d rows, and then %v; want rows+20, and then nothing", len(seen), w.Entries)
			}
			checkIndex(r, 2, "in the end")
		})
	}
}
