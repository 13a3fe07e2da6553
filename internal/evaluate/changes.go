package evaluate

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxChangesBytes is the size at which a page of changes ends, in bytes.
const maxChangesBytes = 256 << 10

// changes reads the recorded changes at the timestamp. If the record does not reach back to
// since, it returns only the timestamp from which the record is complete.
func changes(v View, req *pb.TabletRequest, at mvcc.Timestamp) (*pb.TabletResponse, error) {
	q := req.GetChanges()
	span, ok := wire.Clip(v.Descriptor(), wire.Span(q.GetSpan()))
	if !ok {
		return elsewhere(v), nil
	}
	r := mvcc.ChangesRequest{
		Span: span, Since: mvcc.Timestamp(q.Since), At: at, MaxBytes: int(q.MaxBytes),
	}
	for _, c := range q.Columns {
		r.Columns = append(r.Columns, wire.String(c))
	}
	if q.After != nil {
		after := wire.Cell(q.After)
		r.After = &after
	}
	if r.MaxBytes <= 0 || r.MaxBytes > maxChangesBytes {
		r.MaxBytes = maxChangesBytes
	}
	if room := int(req.MaxAnswerBytes); room > 0 { // an answer is larger than its rows and values
		r.MaxBytes = min(r.MaxBytes, room/2)
	}
	recorded, from := v.Recorded(r.Since)
	out := &pb.ChangesResponse{CompleteFrom: uint64(from), Resolved: q.Since}
	if from != 0 && from <= r.Since {
		result, err := mvcc.Changes(v, r, recorded)
		if err != nil {
			return nil, err
		}
		out.Status, out.More = pb.Status(result.Status), result.More
		out.Resolved = uint64(result.Resolved)
		out.Changes = changesPB(result.Changes)
		for _, l := range result.Locks {
			out.Locks = append(out.Locks, wire.LockInfoPB(l))
		}
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Changes{Changes: out}}, nil
}

// changesPB converts the changes of a page. Their messages share two allocations.
func changesPB(changes []mvcc.ReadCell) []*pb.ReadCell {
	out, cells := make([]pb.ReadCell, len(changes)), make([]pb.Cell, len(changes))
	refs := make([]*pb.ReadCell, len(changes))
	for i := range changes {
		c, to, cell := &changes[i], &out[i], &cells[i]
		cell.Table, cell.Row = uint32(c.Cell.Table), wire.Bytes(c.Cell.Row)
		cell.Class, cell.Column = uint32(c.Cell.Class), wire.Bytes(c.Cell.Column)
		to.Cell, to.Value, to.Deleted = cell, c.Value, c.Deleted
		to.CommitTs, to.StartTs = uint64(c.CommitTS), uint64(c.StartTS)
		refs[i] = to
	}
	return refs
}
