package tablet

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// lockToo adds a lock of the row, without a write, to the writes.
func lockToo(writes []*pb.CellWrite, row string) []*pb.CellWrite {
	return append(writes, &pb.CellWrite{Cell: cellOf(row), Kind: pb.Kind_KIND_LOCK})
}

// TestPastLockStays: a transaction that began before a lock was committed conflicts with it,
// whichever replica leads and whichever tablet has the row by then. Catches BROKEN=forget_past_lock
// and lead_without_past_locks.
func TestPastLockStays(t *testing.T) {
	for name, near := range map[string]bool{"near oracle": true, "far oracle": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, store.Options{InMemory: true})
			r.near.Store(near)
			tablet := uint64(2)
			refused := func(when string, start mvcc.Timestamp, row string) {
				t.Helper()
				for what, req := range map[string]*pb.TabletRequest{
					"one phase": onePhaseOf(start, put(row, "late")),
					"prewrite":  prewriteOf(start, row, "late"),
					"lock":      onePhaseOf(start, lockToo(put("z", "late"), row)),
				} {
					if got := r.do(tablet, req).GetMutation(); got.GetStatus() != pb.Status_STATUS_CONFLICT {
						t.Errorf("PAST-LOCK: %s, %s: %v", when, what, got)
					}
				}
			}
			before := r.take(1)
			r.do(2, onePhaseOf(r.take(1), lockToo(put("a", "1"), "m")))
			refused("by this leader", before, "m")
			r.restart(2)
			refused("by an earlier leader", before, "m")
			r.do(2, onePhaseOf(r.take(1), put("other", "1"))) // the leader has received a timestamp
			refused("by an earlier leader that was given less", before, "m")

			between := r.take(1)
			start := r.take(1)
			r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
				StartTs: uint64(start), Primary: cellOf("a"), Expiry: uint64(mvcc.MaxTimestamp - 1),
				Worker: &pb.Worker{}, Writes: lockToo(put("a", "2"), "n"),
			}}})
			if got := r.do(2, getOf(r.take(1), "n")).GetGet().Results[0]; got.Status != pb.Status_STATUS_OK {
				t.Errorf("a reader encounters the lock: %v", got)
			}
			commit := uint64(r.take(1))
			r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
				StartTs: uint64(start), CommitTs: commit, Cells: []*pb.Cell{cellOf("a")},
			}}})
			r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{ResolveLock: &pb.ResolveLockRequest{
				StartTs: uint64(start), CommitTs: commit, Cells: []*pb.Cell{cellOf("n")},
			}}})
			refused("in two phases", between, "n")

			r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Split{
				Split: &pb.SplitRequest{Table: 16, Row: []byte("k"), NewTabletId: 3},
			}})
			r.awaitLeader()
			tablet = 3
			refused("before a split", before, "m")
			refused("before a split", between, "n")
			got := r.do(3, onePhaseOf(r.take(1), lockToo(put("m", "1"), "n"))).GetMutation()
			if got.GetStatus() != pb.Status_STATUS_OK {
				t.Errorf("a later transaction: %v", got)
			}
		})
	}
}
