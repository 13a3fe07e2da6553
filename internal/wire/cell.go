package wire

import (
	"unsafe"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// String returns b as a string without copying. b must not change afterwards.
func String(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Bytes returns s as bytes without copying. The result must not be changed.
func Bytes(s string) []byte {
	if s == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// Cell converts an address; nil is the zero cell.
func Cell(c *pb.Cell) mvcc.Cell {
	if c == nil {
		return mvcc.Cell{}
	}
	return mvcc.Cell{
		Table: mvcc.TableID(c.Table), Row: String(c.Row), Class: mvcc.Class(c.Class),
		Column: String(c.Column),
	}
}

// CellPB converts an address.
func CellPB(c mvcc.Cell) *pb.Cell {
	return &pb.Cell{
		Table: uint32(c.Table), Row: Bytes(c.Row), Class: uint32(c.Class), Column: Bytes(c.Column),
	}
}

// Cells converts addresses.
func Cells(in []*pb.Cell) []mvcc.Cell {
	if len(in) == 0 {
		return nil
	}
	out := make([]mvcc.Cell, len(in))
	for i, c := range in {
		out[i] = Cell(c)
	}
	return out
}

// CellsPB converts addresses with one allocation for all of them.
func CellsPB(in []mvcc.Cell) []*pb.Cell {
	if len(in) == 0 {
		return nil
	}
	block, out := make([]pb.Cell, len(in)), make([]*pb.Cell, len(in))
	for i := range in {
		c, p := &in[i], &block[i]
		p.Table, p.Row, p.Class, p.Column = uint32(c.Table), Bytes(c.Row), uint32(c.Class),
			Bytes(c.Column)
		out[i] = p
	}
	return out
}

// WalkedColumn returns the column of a walk of the notify group.
func WalkedColumn(req *pb.WalkRequest) mvcc.ObservedColumn {
	return mvcc.ObservedColumn{
		Table: mvcc.TableID(req.GetTable()), Class: mvcc.Class(req.GetClass()),
		Column: String(req.GetColumn()),
	}
}

// ColumnOf returns the column that the observer observes.
func ColumnOf(o *pb.ObserverInfo) mvcc.ObservedColumn {
	return mvcc.ObservedColumn{
		Table: mvcc.TableID(o.GetTable()), Column: String(o.GetColumn()),
	}
}

// NotifyColumn returns the column of the observer's notify entries: the one that it observes, or
// that of its acknowledgments.
func NotifyColumn(o *pb.ObserverInfo) mvcc.ObservedColumn {
	if o.GetOwnEntry() {
		return mvcc.ObservedColumn{
			Table: mvcc.TableID(o.GetTable()), Class: mvcc.ClassAck, Column: o.GetName(),
		}
	}
	return ColumnOf(o)
}

// Worker converts a worker; nil is none.
func Worker(w *pb.Worker) mvcc.Worker {
	return mvcc.Worker{Node: w.GetNode(), Incarnation: w.GetIncarnation()}
}

// WorkerPB converts a worker.
func WorkerPB(w mvcc.Worker) *pb.Worker {
	return &pb.Worker{Node: w.Node, Incarnation: w.Incarnation}
}

// Span converts a range of rows.
func Span(s *pb.Span) mvcc.Span {
	return mvcc.Span{
		Table: mvcc.TableID(s.GetTable()), Start: String(s.GetStart()), End: String(s.GetEnd()),
		HasEnd: s.GetHasEnd(),
	}
}

// SpanPB converts a range of rows.
func SpanPB(s mvcc.Span) *pb.Span {
	return &pb.Span{
		Table: uint32(s.Table), Start: Bytes(s.Start), End: Bytes(s.End), HasEnd: s.HasEnd,
	}
}

// Writes converts buffered writes.
func Writes(in []*pb.CellWrite) []mvcc.CellWriteRequest {
	if len(in) == 0 {
		return nil
	}
	out := make([]mvcc.CellWriteRequest, len(in))
	for i, w := range in {
		out[i] = mvcc.CellWriteRequest{Cell: Cell(w.Cell), Kind: mvcc.Kind(w.Kind), Value: w.Value}
	}
	return out
}
