package memory

import (
	"cmp"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// The record of changes (docs/adr/0072): a leader whose tablet has subscribers keeps the newest
// data records that have become visible, so that it can answer them without a scan. Only the
// tablet's turns change it; a ReadView has an immutable prefix.

const (
	// maxRecorded is the maximum size of one tablet's record, in bytes.
	maxRecorded = 4 << 20
	// recordFor is the time after the last request at which a leader stops recording.
	recordFor = time.Minute
	// recordedOverhead is the size of an entry in addition to its row, column and value.
	recordedOverhead = 160
)

// RecordBudget limits the records of all tablets of a node, in bytes. A tablet that records when
// the budget is used up shortens its own record. It is safe for concurrent use; nil means no limit.
type RecordBudget struct {
	Max  int64 // defaults to 64 MiB
	used atomic.Int64
}

// add counts n bytes and reports whether the budget is exceeded.
func (b *RecordBudget) add(n int) bool {
	return b != nil && b.used.Add(int64(n)) > cmp.Or(b.Max, 64<<20)
}

// Record is a record of changes. It ends with the leadership, or when no request has used it for
// recordFor.
type Record struct {
	budget  *RecordBudget
	entries []recorded // in the order in which they became visible
	bytes   int
	// from: the record contains every change with a greater commit timestamp; 0: not known yet.
	from mvcc.Timestamp
	used time.Time // time of the last request
}

// recorded is a change, and latest the greatest commit timestamp up to it. latest never decreases,
// so the entries can be searched by it although commits become visible out of order.
type recorded struct {
	change mvcc.CellWrite
	latest mvcc.Timestamp
}

// Record returns the record of changes, and begins one if there is none. The caller passes a new
// record a timestamp that it requests after that (Complete).
func (m *Memory) Record() (r *Record, begun bool) {
	if m.record == nil {
		m.record, begun = &Record{budget: m.cfg.Recorded}, true
	}
	m.record.used = time.Now()
	return m.record, begun
}

// Complete sets the timestamp above which a record is complete. The oracle must have issued it
// after the record was begun: what was visible by then has lower commit timestamps. It changes
// nothing if the record has ended since.
func (m *Memory) Complete(r *Record, from mvcc.Timestamp) {
	if r == m.record {
		r.from = max(r.from, from)
	}
}

// Recording reports whether changes are recorded.
func (m *Memory) Recording() bool { return m.record != nil }

// endRecord ends the record.
func (m *Memory) endRecord() {
	if m.record != nil {
		m.record.budget.add(-m.record.bytes)
		m.record = nil
	}
}

// noteChanges adds the data records among visible effects to the record, and reports whether there
// are any. It ends a record that no request has used for recordFor.
func (m *Memory) noteChanges(effects []mvcc.Mutation) (changed bool) {
	r := m.record
	if r == nil {
		return false
	}
	if time.Since(r.used) > recordFor {
		m.endRecord()
		return false
	}
	for i := range effects {
		e := &effects[i]
		if e.Group == mvcc.GroupWrite && !e.Delete && e.Cell.Class == mvcc.ClassData {
			r.add(e)
			changed = true
		}
	}
	return changed
}

// add appends a change, and drops the oldest ones beyond the limits.
func (r *Record) add(e *mvcc.Mutation) {
	// The effect's strings are parts of whole messages, which the record must not keep.
	c := mvcc.CellWrite{Cell: e.Cell, Write: *e.Write}
	c.Cell.Row, c.Cell.Column = strings.Clone(c.Cell.Row), strings.Clone(c.Cell.Column)
	c.Write.Value = append([]byte(nil), c.Write.Value...)
	latest := c.Write.CommitTS
	if n := len(r.entries); n > 0 {
		latest = max(latest, r.entries[n-1].latest)
	}
	r.entries = append(r.entries, recorded{c, latest})
	n := r.entries[len(r.entries)-1].size()
	r.bytes += n
	full := r.budget.add(n)
	for r.bytes > maxRecorded || (full && len(r.entries) > 0) {
		full = r.drop()
	}
}

// drop removes the oldest change, and reports whether the budget is still exceeded.
func (r *Record) drop() bool {
	first := &r.entries[0]
	n := first.size()
	// From now on changes up to this timestamp may be missing, also in entries recorded later.
	r.from = max(r.from, first.latest)
	r.entries = r.entries[1:]
	r.bytes -= n
	return r.budget.add(-n)
}

func (e *recorded) size() int {
	return recordedOverhead + len(e.change.Cell.Row) + len(e.change.Cell.Column) + len(e.change.Write.Value)
}

// above returns the entries of which some may have a commit timestamp above since: all others come
// before.
func above(entries []recorded, since mvcc.Timestamp) []recorded {
	return entries[sort.Search(len(entries), func(i int) bool { return entries[i].latest > since }):]
}

// Incomplete reports whether it is not known yet from where on the record is complete.
func (r *Record) Incomplete() bool { return r.from == 0 }

// Idle reports whether the record is complete above since and has no change above it.
func (r *Record) Idle(since mvcc.Timestamp) bool {
	return r.from != 0 && r.from <= since && len(above(r.entries, since)) == 0
}

// Recorded implements evaluate.View.
func (v *ReadView) Recorded(since mvcc.Timestamp) (changes []mvcc.CellWrite, from mvcc.Timestamp) {
	if v.recordedFrom == 0 || v.recordedFrom > since {
		return nil, v.recordedFrom
	}
	entries := above(v.recorded, since)
	changes = make([]mvcc.CellWrite, len(entries))
	for i := range entries {
		changes[i] = entries[i].change
	}
	return changes, v.recordedFrom
}
