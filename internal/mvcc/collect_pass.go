package mvcc

import (
	"cmp"
	"slices"
)

// SortGarbage sorts garbage into the order that CollectCells requires, cells in descending order,
// and merges duplicates.
func SortGarbage(list []Garbage) []Garbage {
	slices.SortFunc(list, func(a, b Garbage) int {
		return cmp.Or(b.Cell.Compare(a.Cell), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.TS, b.TS))
	})
	return slices.CompactFunc(list, func(a, b Garbage) bool {
		// One entry stands for all history records of a cell: the first, which has the lowest TS.
		return a.Cell == b.Cell && a.Group == b.Group && (a.TS == b.TS || a.Group == GroupHistory)
	})
}

// CollectCells deletes collectable records of the list, which is in the order of SortGarbage, at
// the view's safepoint: of each cell the oldest first. It returns the number of complete entries at
// the start of the list: the next step continues after them, with a first TS that may have been
// raised to skip the deleted records. Entries of the list that are not garbage, no longer or not
// yet, are skipped.
func CollectCells(v CollectView, list []Garbage, limits CollectLimits) (CollectStep, int, error) {
	s := newCollecting(v, limits)
	var cells []CellAt
	for i := range list {
		if list[i].Group == GroupHistory {
			cells = append(cells, CellAt{list[i].Cell, list[i].TS})
		}
	}
	below, err := s.older(v.HistoryOf(cells, s.safepoint))
	if err != nil {
		return CollectStep{}, 0, err
	}
	for i := range list {
		g := &list[i]
		if below != nil && g.Cell.Compare(*below) < 0 {
			if s.floor != 0 && g.Group == GroupHistory {
				g.TS = max(g.TS, s.floor)
			}
			return s.CollectStep, i, nil
		}
		if err := s.one(g); err != nil {
			return CollectStep{}, 0, err
		}
		if s.full() && i+1 < len(list) {
			return s.CollectStep, i + 1, nil
		}
	}
	return s.CollectStep, len(list), nil
}

// one collects one piece of garbage that is not an older write record (group H).
func (s *collecting) one(g *Garbage) error {
	switch g.Group {
	case GroupRollback:
		return s.rollback(g.Cell, g.TS)
	case GroupLocked:
		return s.locked(g.Cell)
	case GroupNotify, GroupRaw:
		s.Looked++
		if s.view.Dropped(g.Cell.Table) {
			s.drop(g.Group, g.Cell, 0)
		}
		return nil
	default:
		return s.newest(g.Cell)
	}
}

// GarbageOf appends the entries that an operation's mutations have made, or will make, garbage:
// the records that they moved to H, a delete, a committed lock, a rollback record.
func GarbageOf(list []Garbage, muts []Mutation) []Garbage {
	for i := range muts {
		m := &muts[i]
		switch {
		case m.Delete:
		case m.Group == GroupWrite && i > 0 && muts[i-1].Group == GroupHistory &&
			muts[i-1].Cell == m.Cell:
			list = append(list, Garbage{
				Group: GroupHistory, Cell: m.Cell, TS: muts[i-1].TS, From: m.Write.CommitTS,
			})
		case m.Group == GroupWrite && m.Write.Kind == KindDelete:
			list = append(list, Garbage{
				Group: GroupHistory, Cell: m.Cell, TS: m.Write.CommitTS, From: m.Write.CommitTS,
			})
		case m.Group == GroupLocked:
			list = append(list, Garbage{
				Group: GroupLocked, Cell: m.Cell, From: m.Write.CommitTS + 1,
			})
		case m.Group == GroupRollback:
			list = append(list, Garbage{
				Group: GroupRollback, Cell: m.Cell, TS: m.TS, From: m.TS + 1,
			})
		}
	}
	return list
}
