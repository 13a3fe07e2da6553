package tablet

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

func rollbackOf(start mvcc.Timestamp, row string) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_Rollback{
			Rollback: &pb.RollbackRequest{StartTs: uint64(start), Cells: []*pb.Cell{cellOf(row)}},
		},
	}
}

// TestRolledBackStaysSo: a rolled-back transaction writes nothing afterwards, whether the rollback
// came before its tablet's leader began to serve, after, or is still in flight. Catches
// BROKEN=forget_rollback.
func TestRolledBackStaysSo(t *testing.T) {
	for name, near := range map[string]bool{"near oracle": true, "far oracle": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, store.Options{InMemory: true})
			r.near.Store(near)
			refused := func(when string, start mvcc.Timestamp, row string) {
				t.Helper()
				for what, req := range map[string]*pb.TabletRequest{"one phase": onePhaseOf(start,
					put(row, "late")), "prewrite": prewriteOf(start, row, "late")} {
					if got := r.do(2, req).GetMutation(); got.GetStatus() != pb.Status_STATUS_ROLLED_BACK {
						t.Errorf("ROLLED-BACK: %s, %s: %v", when, what, got)
					}
				}
			}
			before := r.take(1)
			r.do(2, rollbackOf(before, "a"))
			refused("before anything was committed", before, "a")
			r.restart(2)
			// the leader has received a timestamp
			r.do(2, onePhaseOf(r.take(1), put("other", "1")))
			refused("by an earlier leader", before, "a")
			after := r.take(1)
			r.do(2, rollbackOf(after, "b"))
			refused("by this leader", after, "b")
			older := after - 1
			r.do(2, rollbackOf(older, "c"))
			refused("by this leader, and older than another", older, "c")
			flying := r.take(1)
			release := r.hold()
			rolled := r.start(2, rollbackOf(flying, "d"))
			r.until(2, "the rollback is proposed", func(s *pb.StatusResponse) bool {
				return s.LastIndex > s.AppliedIndex || s.Mutations >= 9
			})
			late := r.start(2, onePhaseOf(flying, put("d", "late")))
			release()
			await(t, rolled)
			if got := await(t, late).GetMutation(); got.GetStatus() != pb.Status_STATUS_ROLLED_BACK {
				t.Errorf("ROLLED-BACK: in flight: %v", got)
			}
			if got := r.do(2, onePhaseOf(r.take(1),
				put("a", "1"))).GetMutation(); got.GetStatus() != pb.Status_STATUS_OK {
				t.Errorf("another transaction: %v", got)
			}
		})
	}
}
