// Package evaluatetest provides an in-memory view for tests that evaluate operations without a
// tablet.
package evaluatetest

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/wire"
)

// Mem is the View of a tablet over a MemView, which may also contain rows of other tablets. Its
// observers have no name, unless they have separate notify entries.
type Mem struct {
	*mvcctest.MemView
	Tablet   *pb.TabletDescriptor
	MaxSizes mvcc.Limits
	Origins  []mvcc.Timestamp // of the written notifications, in order
	From     mvcc.Timestamp   // changes are recorded above it; 0: all are
}

var _ evaluate.View = Mem{}

// Descriptor implements evaluate.View.
func (m Mem) Descriptor() *pb.TabletDescriptor { return m.Tablet }

// Limits implements evaluate.View.
func (m Mem) Limits() mvcc.Limits { return m.MaxSizes }

// Notified implements evaluate.View.
func (m Mem) Notified() uint64 { return uint64(len(m.Origins)) }

// Queue implements evaluate.View.
func (m Mem) Queue(mvcc.ObservedColumn, uint64) (iter.Seq[evaluate.Queued], bool) { return nil, false }

// Row implements evaluate.View.
func (m Mem) Row(t mvcc.TableID, row string, _ int,
	only ...mvcc.Cell) ([]mvcc.HistoryEntry, error) {
	return slices.DeleteFunc(m.MemView.Row(t, row), func(e mvcc.HistoryEntry) bool {
		return len(only) > 0 && !slices.Contains(only, e.Cell)
	}), nil
}

// Observers implements evaluate.View.
func (m Mem) Observers() []*pb.ObserverInfo {
	var all []*pb.ObserverInfo
	for c, kind := range m.Columns {
		how := m.Observed(c.Table, c.Column)
		if kind == mvcc.NotObserved {
			continue
		}
		o := pb.ObserverInfo{
			Table: uint32(c.Table), Column: []byte(c.Column), Weak: kind == mvcc.ObservedWeak,
		}
		if how.Plain {
			all = append(all, proto.CloneOf(&o))
		}
		for _, name := range how.Own {
			own := proto.CloneOf(&o)
			own.Name, own.OwnEntry = name, true
			all = append(all, own)
		}
	}
	return all
}

// Waiting implements evaluate.View.
func (m Mem) Waiting(o *pb.ObserverInfo) (*pb.ObserverPending, error) {
	out := &pb.ObserverPending{}
	span, ok := wire.Clip(m.Tablet, mvcc.Span{Table: mvcc.TableID(o.Table)})
	if !ok {
		return out, nil
	}
	for n, err := range m.Notifies(wire.NotifyColumn(o), span.Start, false) {
		switch {
		case err != nil:
			return nil, err
		case !span.Contains(n.Cell.Row):
		case n.Notify.ParkedTS != 0:
			out.Parked++
		default:
			out.Notifications++
		}
	}
	for i, err := range m.Intents(span.Table, string(o.Column), span.Start) {
		if err != nil {
			return nil, err
		}
		if span.Contains(i.Cell.Row) {
			out.Intents++
		}
	}
	return out, nil
}

// Recorded implements evaluate.View.
func (m Mem) Recorded(since mvcc.Timestamp) (changes []mvcc.CellWrite, from mvcc.Timestamp) {
	if from = max(m.From, 1); since < from {
		return nil, from
	}
	for _, e := range m.Entries() {
		if e.Write != nil && (e.Group == mvcc.GroupWrite || e.Group == mvcc.GroupHistory) {
			changes = append(changes, mvcc.CellWrite{Cell: e.Cell, Write: *e.Write})
		}
	}
	return changes, from
}

// Early implements evaluate.View.
func (m Mem) Early(o *pb.ObserverInfo, until mvcc.Timestamp) *pb.ObserverPending {
	out := &pb.ObserverPending{Name: o.Name}
	span, ok := wire.Clip(m.Tablet, mvcc.Span{Table: mvcc.TableID(o.Table)})
	if !ok {
		return out
	}
	for n, err := range m.Notifies(wire.NotifyColumn(o), span.Start, false) {
		switch {
		case err != nil || !span.Contains(n.Cell.Row) || n.Notify.Origin() > until:
		case n.Notify.ParkedTS != 0:
			out.Parked++
		default:
			out.Notifications++
		}
	}
	for i, err := range m.Intents(span.Table, string(o.Column), span.Start) {
		if err == nil && span.Contains(i.Cell.Row) && i.Intent.From(i.StartTS) <= until {
			out.Intents++
		}
	}
	return out
}

// Noted implements evaluate.View.
func (m Mem) Noted(req *pb.EffectsRequest) (written, hidden bool, mark *pb.EffectsMark) {
	mark = &pb.EffectsMark{
		Tablet: m.Tablet.GetTabletId(), Term: 1, Sequence: uint64(len(m.Origins)),
	}
	since := req.GetSince()
	if since.GetTablet() != mark.Tablet || since.GetSequence() > mark.Sequence {
		return true, false, mark
	}
	return slices.ContainsFunc(m.Origins[since.GetSequence():], func(o mvcc.Timestamp) bool {
		return uint64(o) <= req.GetUntil()
	}), false, mark
}
