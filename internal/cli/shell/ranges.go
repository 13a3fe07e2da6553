package shell

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// RangeOut is the range of a tablet in JSON.
type RangeOut struct {
	Start PositionOut  `json:"start"`
	End   *PositionOut `json:"end,omitempty"` // nil: no end
}

// PositionOut is a bound of a range in JSON.
type PositionOut struct {
	Table string       `json:"table"`
	Row   pbjson.Bytes `json:"row"`
}

// NewRangeOut converts a descriptor's range.
func NewRangeOut(d *pb.TabletDescriptor, names *inspect.Names) RangeOut {
	out := RangeOut{Start: PositionOut{names.ByID(d.StartTable), pbjson.Bytes(d.StartRow)}}
	if !d.EndUnbounded {
		out.End = &PositionOut{names.ByID(d.EndTable), pbjson.Bytes(d.EndRow)}
	}
	return out
}

// Text formats both ends of the range.
func (r *RangeOut) Text() (from, before string) {
	if r.End == nil {
		return r.Start.Text(), "the end"
	}
	return r.Start.Text(), r.End.Text()
}

// Text formats a position in the order of all rows; a table without a row is its first row.
func (p PositionOut) Text() string {
	if p.Row == "" {
		return p.Table
	}
	return p.Table + "/" + inspect.Shortened(string(p.Row), inspect.ValueWidth/2)
}
