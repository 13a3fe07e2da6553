package salvage

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// span is a range of rows over all tables; without an end it contains all rows from start on.
type span struct {
	start wire.Position
	end   wire.Position
	ends  bool
}

func spanOf(d *pb.TabletDescriptor) span {
	end, ends := wire.EndOf(d)
	return span{wire.StartOf(d), end, ends}
}

// within sets the descriptor's range to the span, and returns the descriptor.
func (s span) within(d *pb.TabletDescriptor) *pb.TabletDescriptor {
	d.StartTable, d.StartRow = uint32(s.start.Table), wire.Bytes(s.start.Row)
	d.EndTable, d.EndRow, d.EndUnbounded = 0, nil, !s.ends
	if s.ends {
		d.EndTable, d.EndRow = uint32(s.end.Table), wire.Bytes(s.end.Row)
	}
	return d
}

func (s span) empty() bool { return s.ends && !s.start.Less(s.end) }

// both returns the intersection, which may be empty.
func (s span) both(o span) span {
	out := s
	if out.start.Less(o.start) {
		out.start = o.start
	}
	if o.ends && (!out.ends || o.end.Less(out.end)) {
		out.end, out.ends = o.end, true
	}
	return out
}

// less returns the at most two parts of s outside of o.
func (s span) less(o span) (out []span) {
	if s.both(o).empty() {
		return []span{s}
	}
	if before := (span{s.start, o.start, true}); !before.empty() {
		out = append(out, before)
	}
	if o.ends {
		if behind := (span{o.end, s.end, s.ends}); !behind.empty() {
			out = append(out, behind)
		}
	}
	return out
}

// claim removes the first part of s that is in free from free and returns it. ok is false if there is
// none.
func claim(free *[]span, s span) (got span, ok bool) {
	for i, f := range *free {
		if got = f.both(s); !got.empty() {
			*free = slices.Replace(*free, i, i+1, f.less(got)...)
			return got, true
		}
	}
	return span{}, false
}
