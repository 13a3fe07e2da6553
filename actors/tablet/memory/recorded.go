package memory

import (
	"cmp"
	"sort"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
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
// recordFor. A copy keeps the changes of its time.
type Record struct {
	budget  *RecordBudget
	changes []mvcc.CellWrite // in the order in which they became visible
	// latest has the greatest commit timestamp up to each change. It never decreases, so the changes
	// can be searched by it although commits become visible out of order.
	latest []mvcc.Timestamp
	bytes  int
	// from: the record contains every change with a greater commit timestamp; 0: not known yet.
	from mvcc.Timestamp
	used time.Time // time of the last request
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
	c := mvcc.CellWrite{Cell: e.Cell, Write: *e.Write}
	// The effect's strings are parts of whole messages, which the record must not keep.
	row, column := len(c.Cell.Row), len(c.Cell.Row)+len(c.Cell.Column)
	own := make([]byte, 0, column+len(c.Write.Value))
	own = append(append(append(own, c.Cell.Row...), c.Cell.Column...), c.Write.Value...)
	c.Cell.Row, c.Cell.Column, c.Write.Value = wire.String(own[:row]), wire.String(own[row:column]), own[column:]
	latest := c.Write.CommitTS
	if n := len(r.latest); n > 0 {
		latest = max(latest, r.latest[n-1])
	}
	r.changes, r.latest = append(r.changes, c), append(r.latest, latest)
	n := recordedSize(&c)
	r.bytes += n
	full := r.budget.add(n)
	for r.bytes > maxRecorded || (full && len(r.changes) > 0) {
		full = r.drop()
	}
}

// drop removes the oldest change, and reports whether the budget is still exceeded.
func (r *Record) drop() bool {
	n := recordedSize(&r.changes[0])
	// From now on changes up to this timestamp may be missing, also in those recorded later.
	r.from = max(r.from, r.latest[0])
	r.changes, r.latest = r.changes[1:], r.latest[1:]
	r.bytes -= n
	return r.budget.add(-n)
}

func recordedSize(c *mvcc.CellWrite) int {
	return recordedOverhead + len(c.Cell.Row) + len(c.Cell.Column) + len(c.Write.Value)
}

// above returns the changes of which some may have a commit timestamp above since: all others come
// before.
func (r *Record) above(since mvcc.Timestamp) []mvcc.CellWrite {
	return r.changes[sort.Search(len(r.latest), func(i int) bool { return r.latest[i] > since }):]
}

// Incomplete reports whether it is not known yet from where on the record is complete.
func (r *Record) Incomplete() bool { return r.from == 0 }

// Idle reports whether the record is complete above since and has no change above it.
func (r *Record) Idle(since mvcc.Timestamp) bool {
	return r.from != 0 && r.from <= since && len(r.above(since)) == 0
}

// Recorded implements evaluate.View.
func (v *ReadView) Recorded(since mvcc.Timestamp) (changes []mvcc.CellWrite, from mvcc.Timestamp) {
	if v.record.from == 0 || v.record.from > since {
		return nil, v.record.from
	}
	return v.record.above(since), v.record.from
}
