package mvcc

import (
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

	// One field per group. Those that scans walk are ordered.
	locks    cellMap[Lock]
	newest   cellMap[Write]
	older    map[Cell][]Write // by descending commit timestamp
	data     map[cellAt][]byte
	rolled   map[cellAt]struct{}
	notifies cellMap[Notify]
	intents  map[cellAt]Intent
	raw      cellMap[[]byte]
}

// ObservedColumn names a column of the catalogue.
type ObservedColumn struct {
	Table  TableID
	Column string
}

// cellAt is the key of groups that hold a cell several times, by timestamp.
type cellAt struct {
	cell Cell
	ts   Timestamp
}

// NewMemView returns an empty tablet.
func NewMemView() *MemView {
	return &MemView{
		Columns:   make(map[ObservedColumn]Observed),
		Observers: make(map[ObservedColumn][]string),
		locks:     newCellMap[Lock](),
		newest:    newCellMap[Write](),
		older:     make(map[Cell][]Write),
		data:      make(map[cellAt][]byte),
		rolled:    make(map[cellAt]struct{}),
		notifies:  newCellMap[Notify](),
		intents:   make(map[cellAt]Intent),
		raw:       newCellMap[[]byte](),
	}
}

// Apply makes the mutations visible, in order.
func (m *MemView) Apply(list []Mutation) {
	for i := range list {
		m.apply(&list[i])
	}
}

// apply makes one mutation visible.
func (m *MemView) apply(mu *Mutation) {
	key := cellAt{mu.Cell, mu.TS}
	switch mu.Group {
	case GroupWrite:
		m.newest.change(mu.Cell, mu.Write, mu.Delete)
	case GroupHistory:
		m.applyOlder(mu)
	case GroupData:
		changeMap(m.data, key, &mu.Value, mu.Delete)
	case GroupLock:
		m.locks.change(mu.Cell, mu.Lock, mu.Delete)
	case GroupRollback:
		changeMap(m.rolled, key, &struct{}{}, mu.Delete)
	case GroupNotify:
		m.notifies.change(mu.Cell, mu.Notify, mu.Delete)
	case GroupIntent:
		changeMap(m.intents, key, mu.Intent, mu.Delete)
	case GroupRaw:
		m.raw.change(mu.Cell, &mu.Value, mu.Delete)
	default:
		panic("mvcc: mutation of an unknown group " + string(rune(mu.Group)))
	}
}

// applyOlder puts or deletes one entry of H.
func (m *MemView) applyOlder(mu *Mutation) {
	// A put may come twice, since requests may: it replaces.
	list := m.older[mu.Cell]
	i, found := searchOlder(list, mu.TS)
	switch {
	case mu.Delete && found:
		list = slices.Delete(list, i, i+1)
	case mu.Delete:
	case found:
		list[i] = *mu.Write
	default:
		list = slices.Insert(list, i, *mu.Write)
	}
	m.older[mu.Cell] = list
}

// searchOlder finds the first entry with commit_ts ≤ ts.
func searchOlder(list []Write, ts Timestamp) (int, bool) {
	return slices.BinarySearchFunc(list, ts, func(w Write, ts Timestamp) int {
		switch {
		case w.CommitTS > ts:
			return -1
		case w.CommitTS < ts:
			return 1
		}
		return 0
	})
}

// changeMap puts or deletes one entry.
func changeMap[K comparable, V any](m map[K]V, key K, value *V, remove bool) {
	if remove {
		delete(m, key)
		return
	}
	m[key] = *value
}

// PutLock puts a lock directly: a reservation of a one-phase commit, which is never a mutation.
func (m *MemView) PutLock(c Cell, l Lock) { m.locks.change(c, &l, false) }

// DropLock removes a lock that PutLock has put.
func (m *MemView) DropLock(c Cell) { m.locks.change(c, nil, true) }

// Lock implements View.
func (m *MemView) Lock(c Cell) (Lock, bool) { return m.locks.get(c) }

// Locks implements View.
func (m *MemView) Locks(s Span, reverse bool) iter.Seq2[Cell, Lock] {
	return m.locks.in(s, reverse)
}

// Newest implements View.
func (m *MemView) Newest(c Cell) (Write, bool, error) {
	w, ok := m.newest.get(c)
	return w, ok, nil
}

// Older implements View.
func (m *MemView) Older(c Cell, atOrBelow Timestamp) iter.Seq2[Write, error] {
	return func(yield func(Write, error) bool) {
		list := m.older[c]
		i, _ := searchOlder(list, atOrBelow)
		for _, w := range list[i:] {
			if !yield(w, nil) {
				return
			}
		}
	}
}

// Data implements View.
func (m *MemView) Data(c Cell, start Timestamp) ([]byte, bool, error) {
	value, ok := m.data[cellAt{c, start}]
	return value, ok, nil
}

// RolledBack implements View.
func (m *MemView) RolledBack(c Cell, start Timestamp) (bool, error) {
	_, ok := m.rolled[cellAt{c, start}]
	return ok, nil
}

// Notification implements View.
func (m *MemView) Notification(c Cell) (Notify, bool, error) {
	n, ok := m.notifies.get(c)
	return n, ok, nil
}

// Intent implements View.
func (m *MemView) Intent(c Cell, start Timestamp) (Intent, bool, error) {
	in, ok := m.intents[cellAt{c, start}]
	return in, ok, nil
}

// Cells implements View.
func (m *MemView) Cells(s Span, reverse bool) iter.Seq2[CellWrite, error] {
	return func(yield func(CellWrite, error) bool) {
		for c, w := range m.newest.in(s, reverse) {
			if !yield(CellWrite{Cell: c, Write: w}, nil) {
				return
			}
		}
	}
}

// Raw implements View.
func (m *MemView) Raw(c Cell) ([]byte, bool, error) {
	value, ok := m.raw.get(c)
	return value, ok, nil
}

// Observed implements View.
func (m *MemView) Observed(t TableID, column string) Observed {
	return m.Columns[ObservedColumn{t, column}]
}

// Bound implements View.
func (m *MemView) Bound() Timestamp { return m.BoundTS }

// Safepoint implements View.
func (m *MemView) Safepoint() Timestamp { return m.SafepointTS }
