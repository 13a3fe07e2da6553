package evaluate

import (
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestEveryOperationIsEvaluated: what the table of operations leaves to this package is
// evaluated here.
func TestEveryOperationIsEvaluated(t *testing.T) {
	m := (&pb.TabletRequest{}).ProtoReflect()
	fields := m.Descriptor().Oneofs().ByName("op").Fields()
	v := Mem{
		MemView: mvcc.NewMemView(), Tablet: &pb.TabletDescriptor{TabletId: 7, EndUnbounded: true},
	}
	for i := range fields.Len() {
		req := &pb.TabletRequest{}
		req.ProtoReflect().Set(fields.Get(i), m.NewField(fields.Get(i)))
		op := wire.OperationOf(req)
		_, _, err := Rule(v, req, mvcc.DefaultLimits())
		if ruled := !errors.Is(err, errNoRule); ruled != (op.By == wire.ByRules) {
			t.Errorf("%s has a rule: %v", op.Name, ruled)
		}
		answer, _, err := Read(v, req, 1)
		if err != nil {
			t.Errorf("%s: %v", op.Name, err)
		}
		if refused := answer.GetError().GetMessage() == notRead(req).Error.Message; refused == (op.By == wire.ByReader) {
			t.Errorf("%s is refused as a read: %v", op.Name, refused)
		}
	}
}
