package wire

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestEveryOperationHasARow iterates over the members of the oneof, so that a new operation cannot
// be missing from the table.
func TestEveryOperationHasARow(t *testing.T) {
	m := (&pb.TabletRequest{}).ProtoReflect()
	fields := m.Descriptor().Oneofs().ByName("op").Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		req := &pb.TabletRequest{}
		req.ProtoReflect().Set(field, m.NewField(field))
		op := OperationOf(req)
		if op.Name != string(field.Name()) || op.By == ByNobody {
			t.Errorf("%s has the row %+v: add one to the table in ops.go", field.Name(), *op)
		}
		if op.Reads() && !op.Has(Repeats) {
			t.Errorf("%s is a read, and may not be repeated", op.Name)
		}
		if op.By == ByReader && op.Has(Finishes) {
			t.Errorf("%s is a read past the queue limit", op.Name)
		}
	}
	if op := OperationOf(&pb.TabletRequest{}); op.By != ByNobody || op.Clients != AccessNone {
		t.Errorf("no operation has the row %+v", *op)
	}
}

// TestAskingRows: a mark that raises nothing, and a checksum that is only asked for, have rows of
// their own in the table of operations.
func TestAskingRows(t *testing.T) {
	mark := func(to uint64) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: to}}}
	}
	checksum := func(id uint64) *pb.TabletRequest {
		return &pb.TabletRequest{
			Op: &pb.TabletRequest_Checksum{Checksum: &pb.ChecksumRequest{Id: id}},
		}
	}
	if OperationOf(mark(1)).Reads() || !OperationOf(mark(0)).Reads() {
		t.Error("a mark is a read if it raises nothing")
	}
	if OperationOf(checksum(0)).Has(Repeats) || !OperationOf(checksum(1)).Has(Repeats) {
		t.Error("a checksum may be asked for again, and not be begun again")
	}
}
