// Package mvcctest is a tablet's state in memory. The tests of mvcc and of its callers run
// the rules over it, in place of a store.
package mvcctest

import (
	"cmp"
	"iter"
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// MemView is one tablet's state in memory: a complete mvcc.View with Apply. It is not safe
// for concurrent use, and an iterator must not outlive the next Apply.
type MemView struct {
	// Columns maps observed columns to their kind.
	Columns map[mvcc.ObservedColumn]mvcc.Observed
	// Observers names the observers of a column: collection deletes the acks of a cell with it.
	Observers map[mvcc.ObservedColumn][]string
	// Own has the observers whose notify entries are at their acks, as columns of ClassAck. The
	// entries of other observers, and of an observed column without Observers, are at its cells.
	Own map[mvcc.ObservedColumn]bool
	// Retired has the observers for which nothing is notified, as columns of ClassAck.
	Retired map[mvcc.ObservedColumn]bool
	// DroppedTS maps dropped tables to the timestamps of their drops.
	DroppedTS map[mvcc.TableID]mvcc.Timestamp
	// BoundTS and SafepointTS are the tablet's bound and safepoint.
	BoundTS, SafepointTS mvcc.Timestamp

	// groups are ordered by cell and timestamp. In L, W, K, N and M a cell is there once, and
	// its timestamp is 0.
	groups map[mvcc.Group][]*mvcc.HistoryEntry
}

var (
	_ mvcc.CollectView = (*MemView)(nil)
	_ mvcc.SurveyView  = (*MemView)(nil)
)

// NewMemView returns an empty tablet.
func NewMemView() *MemView {
	return &MemView{
		Columns: map[mvcc.ObservedColumn]mvcc.Observed{}, Observers: map[mvcc.ObservedColumn][]string{},
		Own: map[mvcc.ObservedColumn]bool{}, Retired: map[mvcc.ObservedColumn]bool{},
		groups: map[mvcc.Group][]*mvcc.HistoryEntry{},
	}
}

// Apply makes the mutations visible, in order.
func (m *MemView) Apply(list []mvcc.Mutation) {
	for _, mu := range list {
		m.apply(mvcc.HistoryEntry{
			Group: mu.Group, Cell: mu.Cell, TS: mu.TS, Write: mu.Write, Lock: mu.Lock,
			Notify: mu.Notify, Intent: mu.Intent, Value: mu.Value,
		}, mu.Delete)
	}
}

// apply puts or deletes one entry.
func (m *MemView) apply(e mvcc.HistoryEntry, remove bool) {
	switch e.Group {
	case mvcc.GroupLock, mvcc.GroupWrite, mvcc.GroupLocked, mvcc.GroupNotify, mvcc.GroupRaw:
		e.TS = 0
	}
	list := m.groups[e.Group]
	i, found := find(list, e.Cell, e.TS)
	switch {
	case remove && found:
		list = slices.Delete(list, i, i+1)
	case remove:
	case found: // replaced, by a later commit or by a copy of the same request
		list[i] = &e
	default:
		list = slices.Insert(list, i, &e)
	}
	m.groups[e.Group] = list
}

// PutLock puts a lock directly, such as a reservation, which is never a mutation.
func (m *MemView) PutLock(c mvcc.Cell, l mvcc.Lock) {
	m.apply(mvcc.HistoryEntry{Group: mvcc.GroupLock, Cell: c, Lock: &l}, false)
}

// DropLock removes a lock that PutLock has put.
func (m *MemView) DropLock(c mvcc.Cell) {
	m.apply(mvcc.HistoryEntry{Group: mvcc.GroupLock, Cell: c}, true)
}

// find returns the index of the first entry at or after (c, ts), and whether its key is equal.
func find(list []*mvcc.HistoryEntry, c mvcc.Cell, ts mvcc.Timestamp) (int, bool) {
	return slices.BinarySearchFunc(list, mvcc.CellAt{Cell: c, TS: ts}, func(e *mvcc.HistoryEntry, at mvcc.CellAt) int {
		return cmp.Or(e.Cell.Compare(at.Cell), cmp.Compare(e.TS, at.TS))
	})
}

// get returns an entry, or an empty one.
func (m *MemView) get(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) (*mvcc.HistoryEntry, bool) {
	if i, ok := find(m.groups[g], c, ts); ok {
		return m.groups[g][i], true
	}
	return &mvcc.HistoryEntry{}, false
}

// there returns what p points to; false for nil.
func there[T any](p *T) (value T, ok bool) {
	if p != nil {
		value, ok = *p, true
	}
	return value, ok
}

// in returns the entries of a group with rows in the span, in order.
func (m *MemView) in(g mvcc.Group, s mvcc.Span) []*mvcc.HistoryEntry {
	list := m.groups[g]
	from, _ := find(list, mvcc.Cell{Table: s.Table, Row: s.Start}, 0)
	to := len(list)
	if s.HasEnd {
		to, _ = find(list, mvcc.Cell{Table: s.Table, Row: s.End}, 0)
	} else if s.Table != ^mvcc.TableID(0) {
		to, _ = find(list, mvcc.Cell{Table: s.Table + 1}, 0)
	}
	return list[from:max(from, to)]
}

// each yields the result of `of` for each entry, with reverse from the last to the first.
func each[K, V any](list []*mvcc.HistoryEntry, reverse bool,
	of func(*mvcc.HistoryEntry) (K, V)) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range list {
			if reverse {
				i = len(list) - 1 - i
			}
			if !yield(of(list[i])) {
				return
			}
		}
	}
}

// ofColumn returns the entries that belong to the column.
func ofColumn(list []*mvcc.HistoryEntry, column mvcc.ObservedColumn) []*mvcc.HistoryEntry {
	return slices.DeleteFunc(slices.Clone(list), func(e *mvcc.HistoryEntry) bool {
		return mvcc.ColumnOf(e.Cell) != column
	})
}

// Lock implements mvcc.View.
func (m *MemView) Lock(c mvcc.Cell) (mvcc.Lock, bool) {
	e, _ := m.get(mvcc.GroupLock, c, 0)
	return there(e.Lock)
}

// Locks implements mvcc.View.
func (m *MemView) Locks(s mvcc.Span, reverse bool) iter.Seq2[mvcc.Cell, mvcc.Lock] {
	return each(m.in(mvcc.GroupLock, s), reverse, func(e *mvcc.HistoryEntry) (mvcc.Cell, mvcc.Lock) {
		return e.Cell, *e.Lock
	})
}

// Newest implements mvcc.View.
func (m *MemView) Newest(c mvcc.Cell) (mvcc.Write, bool, error) {
	e, _ := m.get(mvcc.GroupWrite, c, 0)
	w, ok := there(e.Write)
	return w, ok, nil
}

// older returns the records of a cell in H with from ≤ commit_ts ≤ to, the oldest first.
func (m *MemView) older(c mvcc.Cell, from, to mvcc.Timestamp) []*mvcc.HistoryEntry {
	list := m.groups[mvcc.GroupHistory]
	first, _ := find(list, c, from)
	last, found := find(list, c, to)
	if found {
		last++
	}
	return list[first:max(first, last)]
}

// Older implements mvcc.View.
func (m *MemView) Older(c mvcc.Cell, atOrBelow mvcc.Timestamp) iter.Seq2[mvcc.Write, error] {
	return each(m.older(c, 0, atOrBelow), true, func(e *mvcc.HistoryEntry) (mvcc.Write, error) {
		return *e.Write, nil
	})
}

// Data implements mvcc.View.
func (m *MemView) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	e, ok := m.get(mvcc.GroupData, c, start)
	return e.Value, ok, nil
}

// PastLock implements mvcc.View.
func (m *MemView) PastLock(c mvcc.Cell, from mvcc.Timestamp) (mvcc.Write, bool, error) {
	e, _ := m.get(mvcc.GroupLocked, c, 0)
	w, ok := there(e.Write)
	return w, ok && w.CommitTS >= from, nil
}

// RolledBack implements mvcc.View.
func (m *MemView) RolledBack(c mvcc.Cell, start mvcc.Timestamp) (bool, error) {
	_, ok := m.get(mvcc.GroupRollback, c, start)
	return ok, nil
}

// Notification implements mvcc.View.
func (m *MemView) Notification(c mvcc.Cell) (mvcc.Notify, bool, error) {
	e, _ := m.get(mvcc.GroupNotify, c, 0)
	n, ok := there(e.Notify)
	return n, ok, nil
}

// Intent implements mvcc.View.
func (m *MemView) Intent(c mvcc.Cell, start mvcc.Timestamp) (mvcc.Intent, bool, error) {
	e, _ := m.get(mvcc.GroupIntent, c, start)
	in, ok := there(e.Intent)
	return in, ok, nil
}

// Cells implements mvcc.View.
func (m *MemView) Cells(s mvcc.Span, reverse bool) iter.Seq2[mvcc.CellWrite, error] {
	return each(m.in(mvcc.GroupWrite, s), reverse, cellWrite)
}

func cellWrite(e *mvcc.HistoryEntry) (mvcc.CellWrite, error) {
	return mvcc.CellWrite{Cell: e.Cell, Write: *e.Write}, nil
}

// Raw implements mvcc.View.
func (m *MemView) Raw(c mvcc.Cell) ([]byte, bool, error) {
	e, ok := m.get(mvcc.GroupRaw, c, 0)
	return e.Value, ok, nil
}

// Observed implements mvcc.View.
func (m *MemView) Observed(t mvcc.TableID, column string) mvcc.Observation {
	key := mvcc.ObservedColumn{Table: t, Column: column}
	out := mvcc.Observation{How: m.Columns[key]}
	out.Plain = out.How != mvcc.NotObserved && len(m.Observers[key]) == 0
	for _, name := range m.Observers[key] {
		ack := mvcc.ObservedColumn{Table: t, Class: mvcc.ClassAck, Column: name}
		switch {
		case m.Retired[ack], out.How == mvcc.NotObserved:
		case m.Own[ack]:
			out.Own = append(out.Own, name)
		default:
			out.Plain = true
		}
		if !m.Own[ack] {
			out.PlainOf = name
		}
	}
	return out
}

// Bound implements mvcc.View.
func (m *MemView) Bound() mvcc.Timestamp { return m.BoundTS }

// Safepoint implements mvcc.View.
func (m *MemView) Safepoint() mvcc.Timestamp { return m.SafepointTS }

// Notifications iterates all N entries by cell.
func (m *MemView) Notifications() iter.Seq2[mvcc.Cell, mvcc.Notify] {
	return each(m.groups[mvcc.GroupNotify], false, func(e *mvcc.HistoryEntry) (mvcc.Cell, mvcc.Notify) {
		return e.Cell, *e.Notify
	})
}

// Notifies iterates the N entries of a column by row, from fromRow on, or from the row
// after it.
func (m *MemView) Notifies(column mvcc.ObservedColumn, fromRow string,
	after bool) iter.Seq2[mvcc.CellNotify, error] {
	if after {
		fromRow += "\x00"
	}
	list := ofColumn(m.in(mvcc.GroupNotify, mvcc.Span{Table: column.Table, Start: fromRow}), column)
	return each(list, false, func(e *mvcc.HistoryEntry) (mvcc.CellNotify, error) {
		return mvcc.CellNotify{Cell: e.Cell, Notify: *e.Notify}, nil
	})
}

// Intents iterates the weak intents of a column by row and start timestamp, from fromRow on.
func (m *MemView) Intents(t mvcc.TableID, column, fromRow string) iter.Seq2[mvcc.CellIntent, error] {
	list := ofColumn(m.in(mvcc.GroupIntent, mvcc.Span{Table: t, Start: fromRow}),
		mvcc.ObservedColumn{Table: t, Column: column})
	return each(list, false, cellIntent)
}

func cellIntent(e *mvcc.HistoryEntry) (mvcc.CellIntent, error) {
	return mvcc.CellIntent{Cell: e.Cell, StartTS: e.TS, Intent: *e.Intent}, nil
}

// AllIntents returns all weak intents by cell, then start timestamp.
func (m *MemView) AllIntents() (list []mvcc.CellIntent) {
	for _, e := range m.groups[mvcc.GroupIntent] {
		in, _ := cellIntent(e) // an intent yields no errors
		list = append(list, in)
	}
	return list
}

// RawCells iterates the raw cells with rows in span.
func (m *MemView) RawCells(s mvcc.Span) iter.Seq2[mvcc.RawCell, error] {
	return each(m.in(mvcc.GroupRaw, s), false, func(e *mvcc.HistoryEntry) (mvcc.RawCell, error) {
		return mvcc.RawCell{Cell: e.Cell, Value: e.Value}, nil
	})
}

// Row returns all entries of one row, by column, group and descending timestamp, as the debugger
// shows them.
func (m *MemView) Row(t mvcc.TableID, row string) []mvcc.HistoryEntry {
	list := slices.DeleteFunc(m.Entries(), func(e mvcc.HistoryEntry) bool {
		return e.Cell.Table != t || e.Cell.Row != row
	})
	slices.SortFunc(list, func(a, b mvcc.HistoryEntry) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Group, b.Group),
			cmp.Compare(b.TS, a.TS))
	})
	return list
}

// Entries lists everything, in no order.
func (m *MemView) Entries() (list []mvcc.HistoryEntry) {
	for g, entries := range m.groups {
		for _, e := range entries {
			shown := *e
			switch g {
			case mvcc.GroupLock:
				shown.TS = e.Lock.StartTS
			case mvcc.GroupWrite, mvcc.GroupLocked:
				shown.TS = e.Write.CommitTS
			case mvcc.GroupNotify:
				shown.TS = e.Notify.TS
			}
			list = append(list, shown)
		}
	}
	return list
}

// History implements mvcc.SurveyView.
func (m *MemView) History(s mvcc.Span, below *mvcc.Cell) iter.Seq2[mvcc.CellWrite, error] {
	var cells []mvcc.CellAt
	for _, e := range slices.Backward(m.in(mvcc.GroupHistory, s)) {
		if below == nil || e.Cell.Compare(*below) < 0 {
			cells = append(cells, mvcc.CellAt{Cell: e.Cell})
		}
	}
	return m.HistoryOf(slices.Compact(cells), mvcc.MaxTimestamp)
}

// HistoryOf implements mvcc.CollectView.
func (m *MemView) HistoryOf(cells []mvcc.CellAt, upTo mvcc.Timestamp) iter.Seq2[mvcc.CellWrite, error] {
	var list []*mvcc.HistoryEntry
	for _, c := range cells {
		for _, e := range m.older(c.Cell, c.TS, mvcc.MaxTimestamp) {
			list = append(list, e)
			if e.TS > upTo {
				break
			}
		}
	}
	return each(list, false, cellWrite)
}

// Keys implements mvcc.SurveyView.
func (m *MemView) Keys(g mvcc.Group, s mvcc.Span, after *mvcc.CellAt) iter.Seq2[mvcc.CellAt, error] {
	list := m.in(g, s)
	if after != nil {
		from, found := find(list, after.Cell, after.TS)
		if found {
			from++
		}
		list = list[from:]
	}
	return each(list, false, func(e *mvcc.HistoryEntry) (mvcc.CellAt, error) {
		return mvcc.CellAt{Cell: e.Cell, TS: e.TS}, nil
	})
}

// Acks implements mvcc.Observers.
func (m *MemView) Acks(t mvcc.TableID, column string) []string {
	return m.Observers[mvcc.ObservedColumn{Table: t, Column: column}]
}

// AckOf implements mvcc.Observers.
func (m *MemView) AckOf(t mvcc.TableID, observer string) (mvcc.Watch, bool) {
	for c, names := range m.Observers {
		if c.Table == t && slices.Contains(names, observer) {
			own := m.Own[mvcc.ObservedColumn{Table: t, Class: mvcc.ClassAck, Column: observer}]
			return mvcc.Watch{Column: c.Column, Own: own}, true
		}
	}
	return mvcc.Watch{}, false
}

// Dropped implements mvcc.Observers.
func (m *MemView) Dropped(t mvcc.TableID) bool {
	ts, ok := m.DroppedTS[t]
	return ok && ts <= m.SafepointTS
}
