package mvcc

import (
	"cmp"
	"iter"
	"slices"
)

var (
	_ CollectView = (*MemView)(nil)
	_ SurveyView  = (*MemView)(nil)
)

// History implements SurveyView.
func (m *MemView) History(s Span, below *Cell) iter.Seq2[CellWrite, error] {
	var cells []CellAt
	for c := range m.older {
		if c.Table == s.Table && s.Contains(c.Row) && (below == nil || c.Compare(*below) < 0) {
			cells = append(cells, CellAt{Cell: c})
		}
	}
	slices.SortFunc(cells, func(a, b CellAt) int { return b.Cell.Compare(a.Cell) })
	return m.HistoryOf(cells, MaxTimestamp)
}

// HistoryOf implements CollectView.
func (m *MemView) HistoryOf(cells []CellAt, upTo Timestamp) iter.Seq2[CellWrite, error] {
	return func(yield func(CellWrite, error) bool) {
		for _, c := range cells {
			for _, w := range slices.Backward(slices.Clone(m.older[c.Cell])) {
				if w.CommitTS < c.TS {
					continue
				}
				if !yield(CellWrite{Cell: c.Cell, Write: w}, nil) {
					return
				}
				if w.CommitTS > upTo {
					break
				}
			}
		}
	}
}

// Keys implements SurveyView.
func (m *MemView) Keys(g Group, s Span, after *CellAt) iter.Seq2[CellAt, error] {
	var list []CellAt
	for _, e := range m.entries() {
		if e.Group != g || e.Cell.Table != s.Table || !s.Contains(e.Cell.Row) {
			continue
		}
		k := CellAt{Cell: e.Cell}
		if g == GroupRollback {
			k.TS = e.TS
		}
		list = append(list, k)
	}
	order := func(a, b CellAt) int {
		return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.TS, b.TS))
	}
	slices.SortFunc(list, order)
	return func(yield func(CellAt, error) bool) {
		for _, k := range list {
			if (after == nil || order(k, *after) > 0) && !yield(k, nil) {
				return
			}
		}
	}
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
