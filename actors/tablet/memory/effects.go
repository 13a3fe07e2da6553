package memory

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// A leader's records for clients that wait for all effects of a commit (docs/adr/0042): the
// origins of the notifications written lately, and the runs that have ended. They belong to
// the tablet's turns, are bounded, and are dropped with the leadership; what is unknown counts
// as the worse case, which costs the client another scan.

// maxParts is the number of latest marks for which writtenOrigins knows what was written after
// them.
const maxParts = 1024

// writtenOrigins records the least origin of the notifications written since each of the
// latest marks. It records nothing before the first mark.
type writtenOrigins struct {
	mark  uint64           // the last mark issued
	parts []mvcc.Timestamp // by mark, in a ring: the least origin written after it; 0: nothing
	some  bool             // something was written after the last mark
}

// note records a notification.
func (w *writtenOrigins) note(origin mvcc.Timestamp) {
	if w.parts == nil {
		return
	}
	part := &w.parts[w.mark%maxParts]
	if *part == 0 || origin < *part {
		*part = origin
	}
	w.some = true
}

// since reports whether a notification whose origin is at most the timestamp until was, or may have
// been, written after the mark.
func (w *writtenOrigins) since(mark uint64, until mvcc.Timestamp) bool {
	if mark == 0 || mark > w.mark || w.mark-mark >= maxParts {
		return true
	}
	for ; mark <= w.mark; mark++ {
		if least := w.parts[mark%maxParts]; least != 0 && least <= until {
			return true
		}
	}
	return false
}

// now returns the current mark. A mark after which nothing was written is issued again.
func (w *writtenOrigins) now() uint64 {
	if w.parts == nil {
		w.parts, w.some = make([]mvcc.Timestamp, maxParts), true
	}
	if w.some {
		w.mark++
		w.parts[w.mark%maxParts], w.some = 0, false
	}
	return w.mark
}

// maxEnded is the number of ended runs recorded: requests about a snapshot come soon after it
// is opened, and if more have ended since, others were under way at its timestamp.
const maxEnded = 64

// endedRuns are the runs whose notifications were cleared last.
type endedRuns struct {
	runs   []mvcc.EndedRun // a ring, the oldest at next once it is full
	next   int
	forgot mvcc.Timestamp // the latest end of the runs no longer recorded
}

// add records a run. The changes that one run processed, such as those of a batch, are one
// entry per table.
func (e *endedRuns) add(r mvcc.EndedRun) {
	for i := range e.runs {
		if have := &e.runs[i]; have.Table == r.Table && have.End == r.End {
			have.Origin = min(have.Origin, r.Origin)
			return
		}
	}
	if len(e.runs) < maxEnded {
		e.runs = append(e.runs, r)
		return
	}
	e.forgot = max(e.forgot, e.runs[e.next].End)
	e.runs[e.next], e.next = r, (e.next+1)%maxEnded
}

// after reports whether a run has, or may have, committed after the timestamp for a change of one
// of the tables, where the change originates in a commit at or before the timestamp. No tables
// means all.
func (e *endedRuns) after(at mvcc.Timestamp, tables []uint32) bool {
	return at < e.forgot || slices.ContainsFunc(e.runs, func(r mvcc.EndedRun) bool {
		return r.Origin <= at && at < r.End &&
			(len(tables) == 0 || slices.Contains(tables, uint32(r.Table)))
	})
}

// Ended records ended runs, whose notifications are about to be cleared.
func (m *Memory) Ended(runs []mvcc.EndedRun) {
	for _, r := range runs {
		m.ended.add(r)
	}
}

// KnowsRuns reports whether this leadership has been assigned a timestamp: from then on it
// records all runs that end above it.
func (m *Memory) KnowsRuns() bool { return m.rollbacks.given != 0 }

// effectsNote is the answer to one request, as of one moment.
type effectsNote struct {
	written, hidden bool
	mark            *pb.EffectsMark
}

// effectsOf looks up the answer to the request, and issues a mark.
func (m *Memory) effectsOf(req *pb.EffectsRequest) effectsNote {
	until, since := mvcc.Timestamp(req.GetUntil()), req.GetSince()
	n := effectsNote{mark: &pb.EffectsMark{Tablet: m.tablet.GetTabletId(), Term: m.term}}
	n.written = since.GetTablet() != n.mark.Tablet || since.GetTerm() != n.mark.Term ||
		m.written.since(since.GetSequence(), until)
	n.hidden = req.GetShown() && (!m.KnowsRuns() || until < m.rollbacks.given ||
		m.ended.after(until, req.GetTables()) ||
		slices.ContainsFunc(m.Notifying, func(ts mvcc.Timestamp) bool { return ts <= until }))
	n.mark.Sequence = m.written.now()
	return n
}

// Noted implements evaluate.View.
func (v *ReadView) Noted(req *pb.EffectsRequest) (written, hidden bool, mark *pb.EffectsMark) {
	n := v.effects[req]
	return n.written, n.hidden, n.mark
}

// Early implements evaluate.View, from the captured index alone: later changes of an entry on
// disk are unknown. Of a column with too many entries for the index, Early counts too many: also
// the later notifications in until's bucket of origins (a second or more), all parked ones and all
// intents. Until a worker has counted the column, Early returns 1 of each kind.
func (v *ReadView) Early(o *pb.ObserverInfo, until mvcc.Timestamp) *pb.ObserverPending {
	out := &pb.ObserverPending{Name: o.Name}
	n, of := v.columns[wire.NotifyColumn(o)], v.columns[wire.ColumnOf(o)]
	if n.uncounted || of.uncounted { // the entries on disk are not counted yet
		out.Notifications, out.Intents = 1, 1
		return out
	}
	early := countUpTo(n.origins, until)
	switch {
	case early == 0 && n.parked == 0:
	case n.notifies == nil:
		out.Notifications, out.Parked = early, uint64(n.parked)
	default:
		n.notifies.Scan(func(e mvcc.CellNotify) bool {
			switch {
			case e.Notify.Origin() > until:
			case e.Notify.ParkedTS != 0:
				out.Parked++
			default:
				out.Notifications++
			}
			return true
		})
	}
	switch {
	case of.waiting == 0:
	case of.intents == nil:
		out.Intents = uint64(of.waiting)
	default:
		of.intents.Scan(func(i mvcc.CellIntent) bool {
			if i.Intent.From(i.StartTS) <= until {
				out.Intents++
			}
			return true
		})
	}
	return out
}

// countUpTo counts the timestamps in buckets that may contain one up to the given one.
func countUpTo(buckets []ageBucket, until mvcc.Timestamp) (n uint64) {
	for _, b := range buckets {
		if b.least <= until {
			n += uint64(b.n)
		}
	}
	return n
}
