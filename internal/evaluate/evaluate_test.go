package evaluate_test

import (
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/evaluate/evaluatetest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestEveryOperationIsEvaluated: this package evaluates the operations that the table assigns to
// it.
func TestEveryOperationIsEvaluated(t *testing.T) {
	m := (&pb.TabletRequest{}).ProtoReflect()
	fields := m.Descriptor().Oneofs().ByName("op").Fields()
	v := evaluatetest.Mem{
		MemView: mvcctest.NewMemView(), Tablet: &pb.TabletDescriptor{TabletId: 7, EndUnbounded: true},
	}
	for i := range fields.Len() {
		req := &pb.TabletRequest{}
		req.ProtoReflect().Set(fields.Get(i), m.NewField(fields.Get(i)))
		op := wire.OperationOf(req)
		_, _, err := evaluate.Rule(v, req, mvcc.DefaultLimits())
		if ruled := !errors.Is(err, evaluate.ErrNoRule); ruled != (op.By == wire.ByRules) {
			t.Errorf("%s has a rule: %v", op.Name, ruled)
		}
		answer, _, err := evaluate.Read(v, req, 1)
		if err != nil {
			t.Errorf("%s: %v", op.Name, err)
		}
		if refused := answer.GetError().GetMessage() == evaluate.NotRead(req).Error.Message; refused == (op.By == wire.ByReader) {
			t.Errorf("%s is refused as a read: %v", op.Name, refused)
		}
	}
}

// TestLockedOnlySetsNothingOff: waiting for a commit's effects includes locks of writes to observed
// columns, which may lead to notifications, and not those of Tx.Lock.
func TestLockedOnlySetsNothingOff(t *testing.T) {
	for kind, want := range map[mvcc.Kind]bool{
		mvcc.KindPut: true, mvcc.KindDelete: true, mvcc.KindLock: false,
	} {
		v := evaluatetest.Mem{
			MemView: mvcctest.NewMemView(), Tablet: &pb.TabletDescriptor{TabletId: 7, EndUnbounded: true},
		}
		cell := mvcc.Cell{Table: mvcc.FirstUserTable, Row: "r", Column: "c"}
		v.Columns[mvcc.ObservedColumn{Table: cell.Table, Column: cell.Column}] = mvcc.ObservedStrong
		v.Apply([]mvcc.Mutation{{
			Group: mvcc.GroupLock, Cell: cell, Lock: &mvcc.Lock{StartTS: 5, Kind: kind},
		}})
		resp, _, err := evaluate.Read(v, &pb.TabletRequest{Op: &pb.TabletRequest_Pending{
			Pending: &pb.PendingRequest{Effects: &pb.EffectsRequest{Until: 10}},
		}}, 1)
		if got := resp.GetPending().GetEffects().GetWaiting(); err != nil || got != want {
			t.Errorf("a lock of kind %d is waited for: %v, %v", kind, got, err)
		}
	}
}
