package mvcc

import "slices"

// CollectPlace is how far a walk of a tablet has come. The zero value is its beginning. It names cells, not entries, so
// that it holds whatever is written meanwhile.
type CollectPlace struct {
	stage stage
	cell  *CellAt // the last one done with; nil: none. In the stage of H the walk goes down.
}

// stage is the group that a walk is in. H comes before W: a delete goes when nothing is left below it.
type stage uint8

const (
	stageHistory stage = iota
	stageNewest
	stageRollbacks
	stageNotifies // of dropped tables
	stageRaw      // of dropped tables
	stageEnd
)

// Done reports whether the walk is at its end.
func (p CollectPlace) Done() bool { return p.stage == stageEnd }

// Collect takes a walk of the span one step on: what may be deleted at the view's safepoint, oldest first (invariant 11). It
// returns the deletions and where the next step begins. Deletions that are lost are found again by the next walk.
func Collect(v CollectView, span Span, at CollectPlace, limits CollectLimits) (CollectStep, CollectPlace, error) {
	s := newCollecting(v, limits)
	for at.stage < stageEnd && !s.full() {
		last, err := s.walk(span, at)
		if err != nil {
			return CollectStep{}, at, err
		}
		if last != nil {
			return s.CollectStep, CollectPlace{stage: at.stage, cell: last}, nil
		}
		at = CollectPlace{stage: at.stage + 1}
	}
	return s.CollectStep, at, nil
}

// walk goes through one stage from the place on. It returns the cell after which the step is full; nil: the stage is done.
func (s *collecting) walk(span Span, at CollectPlace) (*CellAt, error) {
	switch at.stage {
	case stageHistory:
		var below *Cell
		if at.cell != nil {
			below = &at.cell.Cell
		}
		below, err := s.older(s.view.History(span, below))
		if below == nil || err != nil {
			return nil, err
		}
		return &CellAt{Cell: *below}, nil
	case stageNewest:
		return s.walkNewest(span, at.cell)
	case stageRollbacks:
		return s.walkKeys(GroupRollback, span, at.cell)
	case stageNotifies:
		return s.walkKeys(GroupNotify, span, at.cell)
	default:
		return s.walkKeys(GroupRaw, span, at.cell)
	}
}

// walkNewest looks through W for deletes, for stray acks, and in a dropped table for everything.
func (s *collecting) walkNewest(span Span, after *CellAt) (*CellAt, error) {
	if after != nil {
		span.Start = max(span.Start, after.Cell.Row)
	}
	dropped := s.view.Dropped(span.Table)
	for cw, err := range s.view.Cells(span, false) {
		if err != nil {
			return nil, err
		}
		if after != nil && cw.Cell.Compare(after.Cell) <= 0 {
			continue
		}
		s.Looked++
		switch {
		case dropped || cw.Write.Kind == KindDelete:
			err = s.newest(cw.Cell)
		case cw.Cell.Class == ClassAck && cw.Write.CommitTS <= s.safepoint:
			err = s.strayAck(cw.Cell)
		}
		if err != nil {
			return nil, err
		}
		if s.full() {
			return &CellAt{Cell: cw.Cell}, nil
		}
	}
	return nil, nil
}

// walkKeys looks through R; and through the notifications and raw cells of a dropped table, which go as they are.
func (s *collecting) walkKeys(g Group, span Span, after *CellAt) (*CellAt, error) {
	if g != GroupRollback && !s.view.Dropped(span.Table) {
		return nil, nil
	}
	for k, err := range s.view.Keys(g, span, after) {
		if err != nil {
			return nil, err
		}
		if g == GroupRollback {
			if err := s.rollback(k.Cell, k.TS); err != nil {
				return nil, err
			}
		} else {
			s.Looked++
			s.drop(g, k.Cell, 0)
		}
		if s.full() {
			return &k, nil
		}
	}
	return nil, nil
}

// SortGarbage brings garbage into the order that CollectCells takes: cells in descending order.
func SortGarbage(list []Garbage) {
	slices.SortFunc(list, func(a, b Garbage) int { return b.Cell.Compare(a.Cell) })
}

// CollectCells does for the cells of the list, in the order of SortGarbage, what a walk does for all. It returns how many of
// the list, from its beginning, are done with: the next step takes the rest.
func CollectCells(v CollectView, list []Garbage, limits CollectLimits) (CollectStep, int, error) {
	s := newCollecting(v, limits)
	var cells []Cell
	for i := range list {
		if list[i].RolledBack == 0 && (len(cells) == 0 || cells[len(cells)-1] != list[i].Cell) {
			cells = append(cells, list[i].Cell)
		}
	}
	below, err := s.older(v.HistoryOf(cells))
	if err != nil {
		return CollectStep{}, 0, err
	}
	for i := range list {
		g := &list[i]
		if below != nil && g.Cell.Compare(*below) < 0 {
			return s.CollectStep, i, nil
		}
		if g.RolledBack != 0 {
			err = s.rollback(g.Cell, g.RolledBack)
		} else {
			err = s.newest(g.Cell)
		}
		if err != nil {
			return CollectStep{}, 0, err
		}
		if s.full() && i+1 < len(list) {
			return s.CollectStep, i + 1, nil
		}
	}
	return s.CollectStep, len(list), nil
}

// GarbageOf appends what an operation's mutations have made, or will make, superfluous: the records that they moved to H, a
// delete, a rollback record.
func GarbageOf(list []Garbage, muts []Mutation) []Garbage {
	for i := range muts {
		m := &muts[i]
		switch {
		case m.Delete:
		case m.Group == GroupWrite:
			previous := i > 0 && muts[i-1].Group == GroupHistory && muts[i-1].Cell == m.Cell
			if previous || m.Write.Kind == KindDelete {
				list = append(list, Garbage{Cell: m.Cell, From: m.Write.CommitTS})
			}
		case m.Group == GroupRollback:
			list = append(list, Garbage{Cell: m.Cell, RolledBack: m.TS, From: m.TS + 1})
		}
	}
	return list
}
