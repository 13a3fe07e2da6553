package mvcc

import (
	"cmp"
	"iter"
	"slices"
)

// cellMap is an ordered map from cells: a map for points and a sorted slice for ranges.
type cellMap[V any] struct {
	values map[Cell]V
	order  []Cell
}

// newCellMap returns an empty map.
func newCellMap[V any]() cellMap[V] { return cellMap[V]{values: make(map[Cell]V)} }

// get looks one cell up.
func (t *cellMap[V]) get(c Cell) (V, bool) {
	v, ok := t.values[c]
	return v, ok
}

// change puts or removes one cell.
func (t *cellMap[V]) change(c Cell, v *V, remove bool) {
	_, there := t.values[c]
	switch {
	case remove && there:
		i, _ := slices.BinarySearchFunc(t.order, c, Cell.Compare)
		t.order = slices.Delete(t.order, i, i+1)
		delete(t.values, c)
	case remove:
	default:
		t.values[c] = *v
		if !there {
			i, _ := slices.BinarySearchFunc(t.order, c, Cell.Compare)
			t.order = slices.Insert(t.order, i, c)
		}
	}
}

// all iterates every cell in order.
func (t *cellMap[V]) all() iter.Seq2[Cell, V] {
	return func(yield func(Cell, V) bool) {
		for _, c := range t.order {
			if !yield(c, t.values[c]) {
				return
			}
		}
	}
}

// in iterates the cells with rows in span.
func (t *cellMap[V]) in(s Span, reverse bool) iter.Seq2[Cell, V] {
	return func(yield func(Cell, V) bool) {
		from, _ := slices.BinarySearchFunc(t.order, Cell{Table: s.Table, Row: s.Start},
			Cell.Compare)
		to := len(t.order)
		if s.HasEnd {
			to, _ = slices.BinarySearchFunc(t.order, Cell{Table: s.Table, Row: s.End}, Cell.Compare)
		} else if s.Table != ^TableID(0) {
			to, _ = slices.BinarySearchFunc(t.order, Cell{Table: s.Table + 1}, Cell.Compare)
		}
		for i := from; i < to; i++ {
			c := t.order[i]
			if reverse {
				c = t.order[to-1-(i-from)]
			}
			if !yield(c, t.values[c]) {
				return
			}
		}
	}
}

// Notifications iterates all N entries by cell.
func (m *MemView) Notifications() iter.Seq2[Cell, Notify] { return m.notifies.all() }

// Notifies iterates the N entries of a column by row, from fromRow on, or from the row
// after it.
func (m *MemView) Notifies(t TableID, column, fromRow string, after bool) iter.Seq2[CellNotify,
	error] {
	return func(yield func(CellNotify, error) bool) {
		for c, n := range m.notifies.in(Span{Table: t, Start: fromRow}, false) {
			if c.Column != column || (after && c.Row == fromRow) {
				continue
			}
			if !yield(CellNotify{Cell: c, Notify: n}, nil) {
				return
			}
		}
	}
}

// Intents iterates the weak intents of a column by row and start timestamp, from fromRow on.
func (m *MemView) Intents(t TableID, column, fromRow string) iter.Seq2[CellIntent, error] {
	return func(yield func(CellIntent, error) bool) {
		for _, i := range m.AllIntents() {
			if i.Cell.Table != t || i.Cell.Column != column || i.Cell.Row < fromRow {
				continue
			}
			if !yield(i, nil) {
				return
			}
		}
	}
}

// AllIntents returns all weak intents by cell, then start timestamp.
func (m *MemView) AllIntents() []CellIntent {
	var list []CellIntent
	for k, in := range m.intents {
		list = append(list, CellIntent{Cell: k.cell, StartTS: k.ts, Intent: in})
	}
	slices.SortFunc(list, func(a, b CellIntent) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.StartTS, b.StartTS))
	})
	return list
}

// RawCells iterates the raw cells with rows in span.
func (m *MemView) RawCells(s Span) iter.Seq2[RawCell, error] {
	return func(yield func(RawCell, error) bool) {
		for c, value := range m.raw.in(s, false) {
			if !yield(RawCell{Cell: c, Value: value}, nil) {
				return
			}
		}
	}
}

// Row returns everything that one row holds, by column, group and descending timestamp:
// what the debugger shows.
func (m *MemView) Row(t TableID, row string) []HistoryEntry {
	list := m.entries()
	list = slices.DeleteFunc(list, func(e HistoryEntry) bool {
		return e.Cell.Table != t || e.Cell.Row != row
	})
	slices.SortFunc(list, func(a, b HistoryEntry) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Group, b.Group),
			cmp.Compare(b.TS, a.TS))
	})
	return list
}

// entries lists everything, in no order.
func (m *MemView) entries() []HistoryEntry {
	var list []HistoryEntry
	add := func(e HistoryEntry) { list = append(list, e) }
	for c, l := range m.locks.all() {
		add(HistoryEntry{Group: GroupLock, Cell: c, TS: l.StartTS, Lock: &l})
	}
	for c, w := range m.newest.all() {
		add(HistoryEntry{Group: GroupWrite, Cell: c, TS: w.CommitTS, Write: &w})
	}
	for c, older := range m.older {
		for _, w := range older {
			add(HistoryEntry{Group: GroupHistory, Cell: c, TS: w.CommitTS, Write: &w})
		}
	}
	for k, v := range m.data {
		add(HistoryEntry{Group: GroupData, Cell: k.cell, TS: k.ts, Value: v})
	}
	for k := range m.rolled {
		add(HistoryEntry{Group: GroupRollback, Cell: k.cell, TS: k.ts})
	}
	for c, n := range m.notifies.all() {
		add(HistoryEntry{Group: GroupNotify, Cell: c, TS: n.TS, Notify: &n})
	}
	for k, in := range m.intents {
		add(HistoryEntry{Group: GroupIntent, Cell: k.cell, TS: k.ts, Intent: &in})
	}
	for c, v := range m.raw.all() {
		add(HistoryEntry{Group: GroupRaw, Cell: c, Value: v})
	}
	return list
}
