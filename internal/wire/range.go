package wire

import (
	"cmp"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Position is a place in the order of rows over all tables.
type Position struct {
	Table mvcc.TableID
	Row   string
}

// Less orders positions by table, then row.
func (p Position) Less(q Position) bool {
	return p.Table < q.Table || (p.Table == q.Table && p.Row < q.Row)
}

// Compare is the order of Less as a comparison.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Table, q.Table), cmp.Compare(p.Row, q.Row))
}

// StartOf returns the tablet's first position.
func StartOf(d *pb.TabletDescriptor) Position {
	return Position{Table: mvcc.TableID(d.GetStartTable()), Row: String(d.GetStartRow())}
}

// EndOf returns the first position after the tablet; ok is false if it has no end.
func EndOf(d *pb.TabletDescriptor) (end Position, ok bool) {
	return Position{Table: mvcc.TableID(d.GetEndTable()), Row: String(d.GetEndRow())},
		!d.GetEndUnbounded()
}

// Holds reports whether the tablet's range holds the position.
func Holds(d *pb.TabletDescriptor, p Position) bool {
	if p.Less(StartOf(d)) {
		return false
	}
	end, ok := EndOf(d)
	return !ok || p.Less(end)
}

// EmptyRange reports whether the tablet's range is empty, as in a replica before its first
// snapshot.
func EmptyRange(d *pb.TabletDescriptor) bool {
	end, bounded := EndOf(d)
	return bounded && !StartOf(d).Less(end)
}

// Overlap reports whether the ranges of both tablets have a row in common.
func Overlap(a, b *pb.TabletDescriptor) bool {
	if EmptyRange(a) || EmptyRange(b) {
		return false
	}
	endA, boundedA := EndOf(a)
	endB, boundedB := EndOf(b)
	return (!boundedA || StartOf(b).Less(endA)) && (!boundedB || StartOf(a).Less(endB))
}

// Supersedes reports whether d proves that the tablet described by other no longer exists
// because d has taken over its rows. Every change of a row's tablet raises the epoch, and a
// tablet contains its own start until another tablet takes over its rows.
func Supersedes(d, other *pb.TabletDescriptor) bool {
	return d.GetTabletId() != other.GetTabletId() && d.GetEpoch() > other.GetEpoch() &&
		!EmptyRange(other) && Holds(d, StartOf(other))
}

// Clip returns the part of the span that the tablet holds; ok is false if it is empty.
func Clip(d *pb.TabletDescriptor, s mvcc.Span) (out mvcc.Span, ok bool) {
	out = s
	start := StartOf(d)
	if start.Table > s.Table {
		return out, false
	}
	if start.Table == s.Table && start.Row > out.Start {
		out.Start = start.Row
	}
	if end, bounded := EndOf(d); bounded {
		if end.Table < s.Table {
			return out, false
		}
		if end.Table == s.Table && (!out.HasEnd || end.Row < out.End) {
			out.End, out.HasEnd = end.Row, true
		}
	}
	return out, !out.HasEnd || out.Start < out.End
}

// SpanOf returns the span of the tablet's rows in the table in which it starts. The span is
// unbounded if the tablet reaches the end of that table.
func SpanOf(d *pb.TabletDescriptor) mvcc.Span {
	start := StartOf(d)
	span, _ := Clip(d, mvcc.Span{Table: start.Table})
	return span
}

// Spans returns the spans of all of the tablet's rows: SpanOf, and that of the timers if they are
// in a later table of the tablet. No other table can be: each one begins with a tablet of its own,
// and the timers get theirs only when some are set (actors/timers).
func Spans(d *pb.TabletDescriptor) []mvcc.Span {
	spans := []mvcc.Span{SpanOf(d)}
	if timers, here := Clip(d, mvcc.Span{Table: mvcc.TimerTable}); here && spans[0].Table != mvcc.TimerTable {
		spans = append(spans, timers)
	}
	return spans
}

// PendingSplits returns the number of the request's split keys at which no tablet of the table is
// known to begin yet.
func PendingSplits(t *pb.Table, req *pb.CreateTableRequest) (n int) {
	asked := map[string]bool{}
	for _, key := range req.GetSplitKeys() {
		asked[string(key)] = true
	}
	for _, key := range t.GetPendingSplitKeys() {
		if asked[string(key)] {
			n++
		}
	}
	return n
}
