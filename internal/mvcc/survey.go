package mvcc

import "iter"

// SurveyView is the input of Survey: one tablet's state on disk at one moment.
type SurveyView interface {
	// Newest and Cells are View's.
	Newest(c Cell) (Write, bool, error)
	Cells(s Span, reverse bool) iter.Seq2[CellWrite, error]
	// History iterates H with rows in the span: cells in descending order, only those before below
	// (nil means all), and of each cell the oldest record first.
	History(s Span, below *Cell) iter.Seq2[CellWrite, error]
	// Keys iterates the keys of group K, R, N or M with rows in the span, in the group's own order,
	// only those after after (nil means all).
	Keys(g Group, s Span, after *CellAt) iter.Seq2[CellAt, error]
	Observers
}

// SurveyPlace is the position of a survey. The zero value is its beginning. It contains cells, not
// entries, so that it stays valid whatever is written and deleted.
type SurveyPlace struct {
	stage stage
	cell  *CellAt // the last completed cell; nil: none. In H cells are in descending order
}

// stage is the group that a survey is in. H comes before W: a delete goes when nothing is
// left below it.
type stage uint8

const (
	stageHistory stage = iota
	stageNewest
	stageLocked
	stageRollbacks
	stageNotifies // of dropped tables
	stageRaw      // of dropped tables
	stageEnd
)

// Done reports whether the survey is at its end.
func (p SurveyPlace) Done() bool { return p.stage == stageEnd }

// Survey searches for garbage in the span from a position on, limited by the number of finds and of
// entries read. It returns the finds, the position to continue from, and the approximate number of
// garbage entries.
func Survey(v SurveyView, span Span, at SurveyPlace, finds,
	looked int) (list []Garbage, entries int, next SurveyPlace, err error) {
	s := survey{view: v, finds: finds, left: looked}
	for at.stage < stageEnd {
		last, err := s.walk(span, at)
		if err != nil {
			return nil, 0, at, err
		}
		if last != nil {
			return s.list, s.entries, SurveyPlace{stage: at.stage, cell: last}, nil
		}
		at = SurveyPlace{stage: at.stage + 1}
	}
	return s.list, s.entries, at, nil
}

// survey is one call of Survey.
type survey struct {
	view    SurveyView
	list    []Garbage
	entries int
	finds   int // maximum length of list
	left    int // how many entries may still be looked at
}

// look counts one entry.
func (s *survey) look() { s.left-- }

// full reports whether this call has reached a limit.
func (s *survey) full() bool { return s.left <= 0 || len(s.list) >= s.finds }

// found adds a find that stands for a number of garbage entries.
func (s *survey) found(g Group, c Cell, ts, from Timestamp, entries int) {
	s.list = append(s.list, Garbage{Group: g, Cell: c, TS: ts, From: from})
	s.entries += entries
}

// walk goes through one stage. It returns the last completed cell if the call has reached a limit;
// nil means the stage is complete.
func (s *survey) walk(span Span, at SurveyPlace) (*CellAt, error) {
	switch at.stage {
	case stageHistory:
		return s.history(span, at.cell)
	case stageNewest:
		return s.newest(span, at.cell)
	case stageLocked:
		return s.keys(GroupLocked, span, at.cell)
	case stageRollbacks:
		return s.keys(GroupRollback, span, at.cell)
	case stageNotifies:
		return s.keys(GroupNotify, span, at.cell)
	default:
		return s.keys(GroupRaw, span, at.cell)
	}
}

// history finds the cells that have records in H. A cell's oldest record becomes garbage once the
// safepoint reaches its second oldest.
func (s *survey) history(span Span, at *CellAt) (*CellAt, error) {
	var below *Cell
	if at != nil {
		below = &at.Cell
	}
	var cell Cell
	var records []Timestamp // commit timestamps of the cell's two oldest records
	n := 0
	for cw, err := range s.view.History(span, below) {
		if err != nil {
			return nil, err
		}
		s.look()
		if n > 0 && cw.Cell != cell {
			if err := s.foundRecords(cell, records, n); err != nil {
				return nil, err
			}
			if s.full() {
				return &CellAt{Cell: cell}, nil
			}
			records, n = records[:0], 0
		}
		cell = cw.Cell
		if n++; len(records) < 2 {
			records = append(records, cw.Write.CommitTS)
		}
	}
	if n == 0 {
		return nil, nil
	}
	return nil, s.foundRecords(cell, records, n)
}

// foundRecords adds the n entries that H has of a cell, of which the oldest one or two
// commit timestamps are given.
func (s *survey) foundRecords(c Cell, oldest []Timestamp, n int) error {
	if len(oldest) == 2 {
		s.found(GroupHistory, c, oldest[0], oldest[1], n)
		return nil
	}
	w, ok, err := s.view.Newest(c)
	if err == nil && ok {
		s.found(GroupHistory, c, oldest[0], w.CommitTS, n)
	}
	return err
}

// newest finds in W deletes, stray acks, and in a dropped table everything.
func (s *survey) newest(span Span, after *CellAt) (*CellAt, error) {
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
		s.look()
		garbage := dropped || cw.Write.Kind == KindDelete
		if !garbage && cw.Cell.Class == ClassAck {
			if garbage, err = s.stray(cw.Cell); err != nil {
				return nil, err
			}
		}
		if garbage {
			s.found(GroupHistory, cw.Cell, cw.Write.CommitTS, cw.Write.CommitTS, 1)
		}
		if s.full() {
			return &CellAt{Cell: cw.Cell}, nil
		}
	}
	return nil, nil
}

// stray reports whether the ack is of an observed cell that has no record.
func (s *survey) stray(ack Cell) (bool, error) {
	of, ok := s.view.AckOf(ack.Table, ack.Column)
	if !ok {
		return false, nil
	}
	_, there, err := s.view.Newest(of.ObservedCell(ack))
	return !there, err
}

// keys finds committed locks and rollback records, and in a dropped table also notifications and
// raw cells, which are deleted without further conditions.
func (s *survey) keys(g Group, span Span, after *CellAt) (*CellAt, error) {
	if g != GroupLocked && g != GroupRollback && !s.view.Dropped(span.Table) {
		return nil, nil
	}
	for k, err := range s.view.Keys(g, span, after) {
		if err != nil {
			return nil, err
		}
		s.look()
		from := Timestamp(0)
		if g == GroupRollback {
			from = k.TS + 1
		}
		s.found(g, k.Cell, k.TS, from, 1)
		if s.full() {
			return &k, nil
		}
	}
	return nil, nil
}
