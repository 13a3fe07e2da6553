package mvcc

import (
	"cmp"
	"iter"
	"slices"
)

// MemView is one tablet's state in memory: a complete View with Apply. Tests of this
// package and of its callers run the rules over it. It is not safe for concurrent use,
// and an iterator must not outlive the next Apply.
type MemView struct {
	// Columns says how columns are observed; those that are not in it are not.
	Columns map[ObservedColumn]Observed
	// Observers names the observers of a column, whose acks go with a cell that is collected.
	Observers map[ObservedColumn][]string
	// DroppedTS says when tables were dropped.
	DroppedTS map[TableID]Timestamp
	// BoundTS and SafepointTS are the figures of invariant 11.
	BoundTS, SafepointTS Timestamp

	// groups are ordered by cell and timestamp. In L, W, N and M a cell is there once, and
	// its timestamp is 0.
	groups map[Group][]*HistoryEntry
}

var (
	_ CollectView = (*MemView)(nil)
	_ SurveyView  = (*MemView)(nil)
)

// ObservedColumn names a column of the catalogue.
type ObservedColumn struct {
	Table  TableID
	Column string
}

// NewMemView returns an empty tablet.
func NewMemView() *MemView {
	return &MemView{
		Columns: map[ObservedColumn]Observed{}, Observers: map[ObservedColumn][]string{},
		groups: map[Group][]*HistoryEntry{},
	}
}

// Apply makes the mutations visible, in order.
func (m *MemView) Apply(list []Mutation) {
	for _, mu := range list {
		m.apply(HistoryEntry{
			Group: mu.Group, Cell: mu.Cell, TS: mu.TS, Write: mu.Write, Lock: mu.Lock,
			Notify: mu.Notify, Intent: mu.Intent, Value: mu.Value,
		}, mu.Delete)
	}
}

// apply puts or deletes one entry.
func (m *MemView) apply(e HistoryEntry, remove bool) {
	switch e.Group {
	case GroupLock, GroupWrite, GroupNotify, GroupRaw:
		e.TS = 0
	}
	list := m.groups[e.Group]
	i, found := find(list, e.Cell, e.TS)
	switch {
	case remove && found:
		list = slices.Delete(list, i, i+1)
	case remove:
	case found: // requests may come twice
		list[i] = &e
	default:
		list = slices.Insert(list, i, &e)
	}
	m.groups[e.Group] = list
}

// PutLock puts a lock directly: a reservation of a one-phase commit, which is never a mutation.
func (m *MemView) PutLock(c Cell, l Lock) {
	m.apply(HistoryEntry{Group: GroupLock, Cell: c, Lock: &l}, false)
}

// DropLock removes a lock that PutLock has put.
func (m *MemView) DropLock(c Cell) { m.apply(HistoryEntry{Group: GroupLock, Cell: c}, true) }

// find returns where the first entry at or behind (c, ts) is, and whether it is that one.
func find(list []*HistoryEntry, c Cell, ts Timestamp) (int, bool) {
	return slices.BinarySearchFunc(list, CellAt{c, ts}, func(e *HistoryEntry, at CellAt) int {
		return cmp.Or(e.Cell.Compare(at.Cell), cmp.Compare(e.TS, at.TS))
	})
}

// get returns an entry, or an empty one.
func (m *MemView) get(g Group, c Cell, ts Timestamp) (*HistoryEntry, bool) {
	if i, ok := find(m.groups[g], c, ts); ok {
		return m.groups[g][i], true
	}
	return &HistoryEntry{}, false
}

// there returns what p points to; false for nil.
func there[T any](p *T) (value T, ok bool) {
	if p != nil {
		value, ok = *p, true
	}
	return value, ok
}

// in returns the entries of a group with rows in the span, in order.
func (m *MemView) in(g Group, s Span) []*HistoryEntry {
	list := m.groups[g]
	from, _ := find(list, Cell{Table: s.Table, Row: s.Start}, 0)
	to := len(list)
	if s.HasEnd {
		to, _ = find(list, Cell{Table: s.Table, Row: s.End}, 0)
	} else if s.Table != ^TableID(0) {
		to, _ = find(list, Cell{Table: s.Table + 1}, 0)
	}
	return list[from:max(from, to)]
}

// each iterates what is made of the entries; reverse goes from the last to the first.
func each[K, V any](list []*HistoryEntry, reverse bool,
	of func(*HistoryEntry) (K, V)) iter.Seq2[K, V] {
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

// ofColumn returns those of the entries that are of the column.
func ofColumn(list []*HistoryEntry, column string) []*HistoryEntry {
	return slices.DeleteFunc(slices.Clone(list), func(e *HistoryEntry) bool {
		return e.Cell.Column != column
	})
}

// Lock implements View.
func (m *MemView) Lock(c Cell) (Lock, bool) {
	e, _ := m.get(GroupLock, c, 0)
	return there(e.Lock)
}

// Locks implements View.
func (m *MemView) Locks(s Span, reverse bool) iter.Seq2[Cell, Lock] {
	return each(m.in(GroupLock, s), reverse, func(e *HistoryEntry) (Cell, Lock) {
		return e.Cell, *e.Lock
	})
}

// Newest implements View.
func (m *MemView) Newest(c Cell) (Write, bool, error) {
	e, _ := m.get(GroupWrite, c, 0)
	w, ok := there(e.Write)
	return w, ok, nil
}

// older returns the records of a cell in H from one commit timestamp up to another.
func (m *MemView) older(c Cell, from, to Timestamp) []*HistoryEntry {
	list := m.groups[GroupHistory]
	first, _ := find(list, c, from)
	last, found := find(list, c, to)
	if found {
		last++
	}
	return list[first:max(first, last)]
}

// Older implements View.
func (m *MemView) Older(c Cell, atOrBelow Timestamp) iter.Seq2[Write, error] {
	return each(m.older(c, 0, atOrBelow), true, func(e *HistoryEntry) (Write, error) {
		return *e.Write, nil
	})
}

// Data implements View.
func (m *MemView) Data(c Cell, start Timestamp) ([]byte, bool, error) {
	e, ok := m.get(GroupData, c, start)
	return e.Value, ok, nil
}

// RolledBack implements View.
func (m *MemView) RolledBack(c Cell, start Timestamp) (bool, error) {
	_, ok := m.get(GroupRollback, c, start)
	return ok, nil
}

// Notification implements View.
func (m *MemView) Notification(c Cell) (Notify, bool, error) {
	e, _ := m.get(GroupNotify, c, 0)
	n, ok := there(e.Notify)
	return n, ok, nil
}

// Intent implements View.
func (m *MemView) Intent(c Cell, start Timestamp) (Intent, bool, error) {
	e, _ := m.get(GroupIntent, c, start)
	in, ok := there(e.Intent)
	return in, ok, nil
}

// Cells implements View.
func (m *MemView) Cells(s Span, reverse bool) iter.Seq2[CellWrite, error] {
	return each(m.in(GroupWrite, s), reverse, cellWrite)
}

func cellWrite(e *HistoryEntry) (CellWrite, error) {
	return CellWrite{Cell: e.Cell, Write: *e.Write}, nil
}

// Raw implements View.
func (m *MemView) Raw(c Cell) ([]byte, bool, error) {
	e, ok := m.get(GroupRaw, c, 0)
	return e.Value, ok, nil
}

// Observed implements View.
func (m *MemView) Observed(t TableID, column string) Observed {
	return m.Columns[ObservedColumn{t, column}]
}

// Bound implements View.
func (m *MemView) Bound() Timestamp { return m.BoundTS }

// Safepoint implements View.
func (m *MemView) Safepoint() Timestamp { return m.SafepointTS }

// Notifications iterates all N entries by cell.
func (m *MemView) Notifications() iter.Seq2[Cell, Notify] {
	return each(m.groups[GroupNotify], false, func(e *HistoryEntry) (Cell, Notify) {
		return e.Cell, *e.Notify
	})
}

// Notifies iterates the N entries of a column by row, from fromRow on, or from the row
// after it.
func (m *MemView) Notifies(t TableID, column, fromRow string, after bool) iter.Seq2[CellNotify,
	error] {
	if after {
		fromRow += "\x00"
	}
	list := ofColumn(m.in(GroupNotify, Span{Table: t, Start: fromRow}), column)
	return each(list, false, func(e *HistoryEntry) (CellNotify, error) {
		return CellNotify{Cell: e.Cell, Notify: *e.Notify}, nil
	})
}

// Intents iterates the weak intents of a column by row and start timestamp, from fromRow on.
func (m *MemView) Intents(t TableID, column, fromRow string) iter.Seq2[CellIntent, error] {
	list := ofColumn(m.in(GroupIntent, Span{Table: t, Start: fromRow}), column)
	return each(list, false, cellIntent)
}

func cellIntent(e *HistoryEntry) (CellIntent, error) {
	return CellIntent{Cell: e.Cell, StartTS: e.TS, Intent: *e.Intent}, nil
}

// AllIntents returns all weak intents by cell, then start timestamp.
func (m *MemView) AllIntents() (list []CellIntent) {
	for _, e := range m.groups[GroupIntent] {
		in, _ := cellIntent(e) // which has no errors
		list = append(list, in)
	}
	return list
}

// RawCells iterates the raw cells with rows in span.
func (m *MemView) RawCells(s Span) iter.Seq2[RawCell, error] {
	return each(m.in(GroupRaw, s), false, func(e *HistoryEntry) (RawCell, error) {
		return RawCell{Cell: e.Cell, Value: e.Value}, nil
	})
}

// Row returns everything that one row holds, by column, group and descending timestamp:
// what the debugger shows.
func (m *MemView) Row(t TableID, row string) []HistoryEntry {
	list := slices.DeleteFunc(m.entries(), func(e HistoryEntry) bool {
		return e.Cell.Table != t || e.Cell.Row != row
	})
	slices.SortFunc(list, func(a, b HistoryEntry) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Group, b.Group),
			cmp.Compare(b.TS, a.TS))
	})
	return list
}

// entries lists everything, in no order.
func (m *MemView) entries() (list []HistoryEntry) {
	for g, entries := range m.groups {
		for _, e := range entries {
			shown := *e
			switch g {
			case GroupLock:
				shown.TS = e.Lock.StartTS
			case GroupWrite:
				shown.TS = e.Write.CommitTS
			case GroupNotify:
				shown.TS = e.Notify.TS
			}
			list = append(list, shown)
		}
	}
	return list
}

// History implements SurveyView.
func (m *MemView) History(s Span, below *Cell) iter.Seq2[CellWrite, error] {
	var cells []CellAt
	for _, e := range slices.Backward(m.in(GroupHistory, s)) {
		if below == nil || e.Cell.Compare(*below) < 0 {
			cells = append(cells, CellAt{Cell: e.Cell})
		}
	}
	return m.HistoryOf(slices.Compact(cells), MaxTimestamp)
}

// HistoryOf implements CollectView.
func (m *MemView) HistoryOf(cells []CellAt, upTo Timestamp) iter.Seq2[CellWrite, error] {
	var list []*HistoryEntry
	for _, c := range cells {
		for _, e := range m.older(c.Cell, c.TS, MaxTimestamp) {
			list = append(list, e)
			if e.TS > upTo {
				break
			}
		}
	}
	return each(list, false, cellWrite)
}

// Keys implements SurveyView.
func (m *MemView) Keys(g Group, s Span, after *CellAt) iter.Seq2[CellAt, error] {
	list := m.in(g, s)
	if after != nil {
		from, found := find(list, after.Cell, after.TS)
		if found {
			from++
		}
		list = list[from:]
	}
	return each(list, false, func(e *HistoryEntry) (CellAt, error) {
		return CellAt{Cell: e.Cell, TS: e.TS}, nil
	})
}

// Acks implements Observers.
func (m *MemView) Acks(t TableID, column string) []string {
	return m.Observers[ObservedColumn{t, column}]
}

// AckOf implements Observers.
func (m *MemView) AckOf(t TableID, observer string) (string, bool) {
	for c, names := range m.Observers {
		if c.Table == t && slices.Contains(names, observer) {
			return c.Column, true
		}
	}
	return "", false
}

// Dropped implements Observers.
func (m *MemView) Dropped(t TableID) bool {
	ts, ok := m.DroppedTS[t]
	return ok && ts <= m.SafepointTS
}
