package memory

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file has what a leader remembers for those who wait for all that a commit has set
// off (docs/adr/0042): which origins notifications were written with lately, and which runs
// have ended. It belongs to the tablet's turns, is bounded, and forgotten with the
// leadership; what is not known counts as the worse, which costs who asks another walk.

// maxParts is how many marks what was written is told apart by.
const maxParts = 1024

// writtenOrigins knows the least origin of the notifications that were written since each of
// the marks that were given out last. Nothing is kept before the first is.
type writtenOrigins struct {
	mark  uint64           // the last that was given out
	parts []mvcc.Timestamp // by mark, in a ring: the least that was written after it; 0: nothing
	some  bool             // something was written after the last mark
}

// note takes a notification in.
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

// since reports whether a notification of such an origin was written after the mark, or may
// have been.
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

// now returns the mark of this moment. One after which nothing was written is given again.
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

// maxEnded is how many ended runs are known: a snapshot is asked about soon after it was
// opened, and where more have ended since, others were under way at its timestamp.
const maxEnded = 64

// endedRuns are the runs whose notifications were cleared last.
type endedRuns struct {
	runs   []mvcc.EndedRun // a ring, the oldest at next once it is full
	next   int
	forgot mvcc.Timestamp // the latest end of those that are no longer known
}

// add takes a run in. The changes that one run was for, as those of a batch, are one entry
// for each table.
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

// after reports whether a run has committed after the timestamp for what goes back to a
// commit at or before it, or may have.
func (e *endedRuns) after(at mvcc.Timestamp, tables []uint32) bool {
	return at < e.forgot || slices.ContainsFunc(e.runs, func(r mvcc.EndedRun) bool {
		return r.Origin <= at && at < r.End &&
			(len(tables) == 0 || slices.Contains(tables, uint32(r.Table)))
	})
}

// Ended records runs that have ended, whose notifications are about to be cleared.
func (m *Memory) Ended(runs []mvcc.EndedRun) {
	for _, r := range runs {
		m.ended.add(r)
	}
}

// KnowsRuns reports whether this leadership has been given a timestamp: then it knows of all
// runs that end above it.
func (m *Memory) KnowsRuns() bool { return m.rollbacks.given != 0 }

// effectsNote is what a leader remembers at one moment, for one request.
type effectsNote struct {
	written, hidden bool
	mark            *pb.EffectsMark
}

// effectsOf looks up what the request asks for, and gives out a mark.
func (m *Memory) effectsOf(req *pb.EffectsRequest) effectsNote {
	until, mark := mvcc.Timestamp(req.GetUntil()), &pb.EffectsMark{
		Tablet: m.tablet.GetTabletId(), Term: m.term,
	}
	var n effectsNote
	since := req.GetSince()
	n.written = since.GetTablet() != mark.Tablet || since.GetTerm() != mark.Term ||
		m.written.since(since.GetSequence(), until)
	n.hidden = req.GetShown() && (!m.KnowsRuns() || until < m.rollbacks.given ||
		m.ended.after(until, req.GetTables()) ||
		slices.ContainsFunc(m.Notifying, func(ts mvcc.Timestamp) bool { return ts <= until }))
	mark.Sequence = m.written.now()
	n.mark = mark
	return n
}

// Noted implements evaluate.View.
func (v *ReadView) Noted(req *pb.EffectsRequest) (written, hidden bool, mark *pb.EffectsMark) {
	n := v.effects[req]
	return n.written, n.hidden, n.mark
}

// Early implements evaluate.View, from the captured index alone: what an entry on disk has
// become since is not known. Where there are too many for that, all those count whose
// origins are of the same second: sooner or later they have run.
func (v *ReadView) Early(o *pb.ObserverInfo, until mvcc.Timestamp) *pb.ObserverPending {
	out, n := &pb.ObserverPending{Name: o.Name}, v.columns[keyOf(o)]
	if n.uncounted { // nor are there figures yet
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
	case n.waiting == 0:
	case n.intents == nil:
		out.Intents = uint64(n.waiting)
	default:
		n.intents.Scan(func(i mvcc.CellIntent) bool {
			if i.Intent.From(i.StartTS) <= until {
				out.Intents++
			}
			return true
		})
	}
	return out
}

// countUpTo counts the timestamps in buckets that may have one up to the given one.
func countUpTo(buckets []ageBucket, until mvcc.Timestamp) (n uint64) {
	for _, b := range buckets {
		if b.least <= until {
			n += uint64(b.n)
		}
	}
	return n
}
