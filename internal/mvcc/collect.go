package mvcc

import (
	"iter"
)

// Collection of history has two halves. A Survey goes through a tablet and
// finds what is, or will be, garbage; it may look at state that is no longer the newest,
// and take its time. CollectCells decides about a list of garbage on the newest state,
// effects in flight included, like any other operation.

// CollectView is the input of CollectCells.
type CollectView interface {
	View
	// HistoryOf iterates over the records in H of the cells, which are in descending order: of each
	// cell the records with commit_ts ≥ TS, oldest first, up to and including the first above upTo.
	// Records whose deletion is in flight are omitted; so may be records in flight.
	HistoryOf(cells []CellAt, upTo Timestamp) iter.Seq2[CellWrite, error]
	Observers
}

// Observers describes observers and tables to the collection.
type Observers interface {
	// Acks names the observers, present or retired, with acks for the column.
	Acks(t TableID, column string) []string
	// AckOf is the inverse of Acks, as in View.
	AckOf(t TableID, observer string) (w Watch, ok bool)
	// Dropped reports whether the table was dropped at or below the safepoint.
	Dropped(t TableID) bool
}

// CellAt addresses an entry of a group. TS is the entry's timestamp if the group may have several
// entries of one cell; otherwise it is 0.
type CellAt struct {
	Cell Cell
	TS   Timestamp
}

// Garbage is an entry that may be deleted once the safepoint has reached From, unless a lock or
// notification still needs it.
type Garbage struct {
	// Group is H for write records of the cell, its newest record and long values
	// included; K for its newest committed lock; R for a rollback record; N for a
	// notification, or M for a raw cell, of a dropped table.
	Group Group
	Cell  Cell
	// H: the commit_ts at which CollectCells begins, since all records below it are gone already;
	// R: the start timestamp; other groups: 0
	TS   Timestamp
	From Timestamp
}

// CollectLimits bounds one step. A step ends at the entry that reaches a limit, or a few entries
// later.
type CollectLimits struct {
	Entries int // deletions
	Bytes   int // of the keys of the deleted entries, approximately
	Looked  int // entries looked at
}

// CollectStep is the result of one step of collection.
type CollectStep struct {
	Mutations []Mutation // deletions only
	// Kept lists the garbage that the step has read and that cannot be deleted yet. It is
	// incomplete if the step has reached a limit.
	Kept []Garbage
	// Looked is the number of entries read, which is the cost of the step.
	Looked int
}

// collecting is a step in progress.
type collecting struct {
	CollectStep
	view      CollectView
	limits    CollectLimits
	safepoint Timestamp
	bytes     int
	gone      map[CellAt]struct{} // entries of H that this step deletes
	// floor is set if the step ended inside a cell: no record of that cell below floor is left. 0
	// means that the step ended between cells.
	floor Timestamp
}

func newCollecting(v CollectView, limits CollectLimits) *collecting {
	c := &collecting{view: v, limits: limits, safepoint: v.Safepoint(), gone: map[CellAt]struct{}{}}
	return c
}

// full reports whether the step has reached a limit.
func (s *collecting) full() bool {
	return len(s.Mutations) >= s.limits.Entries || s.bytes >= s.limits.Bytes ||
		s.Looked >= s.limits.Looked
}

// drop deletes one entry.
func (s *collecting) drop(g Group, c Cell, ts Timestamp) {
	s.Mutations = append(s.Mutations, Mutation{Group: g, Cell: c, TS: ts, Delete: true})
	s.bytes += len(c.Row) + len(c.Column) + keyOverhead
}

// keyOverhead is the approximate size of a key besides row and column.
const keyOverhead = 24

// dropRecord deletes a write record together with the value that it names. Collection
// deletes values in no other way: the value of a lock, or of the newest record, may be as old.
func (s *collecting) dropRecord(g Group, c Cell, ts Timestamp, w *Write) {
	s.drop(g, c, ts)
	if w.Long {
		s.drop(GroupData, c, w.StartTS)
	}
	if g == GroupHistory {
		s.gone[CellAt{c, ts}] = struct{}{}
	}
}

// keepRecord adds a record that remains to Kept, as garbage from the timestamp from on; 0 means
// that it may never become garbage.
func (s *collecting) keepRecord(c Cell, w *Write, from Timestamp) {
	if from != 0 {
		s.Kept = append(s.Kept, Garbage{Group: GroupHistory, Cell: c, TS: w.CommitTS, From: from})
	}
}

// older deletes records from H that a record at or below the safepoint supersedes: reads at or
// above the safepoint see the superseding record or a later one. In a dropped table it deletes all
// records at or below the safepoint. The entries are in the order of SurveyView.History. below is
// the position before which a later step must continue; nil if all cells are complete.
func (s *collecting) older(entries iter.Seq2[CellWrite, error]) (below *Cell, err error) {
	var prev CellWrite // the previous record, which is deleted or kept by the next one
	have := false
	for cw, err := range entries {
		if err != nil {
			return nil, err
		}
		s.Looked++
		switch {
		case have && cw.Cell != prev.Cell:
			if err := s.lastOlder(&prev); err != nil {
				return nil, err
			}
			if s.full() {
				return &prev.Cell, nil
			}
		case have:
			deleted := s.decide(&prev, cw.Write.CommitTS)
			if s.full() {
				if deleted {
					s.floor = prev.Write.CommitTS + 1
				}
				return resumeAt(prev.Cell, deleted), nil
			}
		}
		prev, have = cw, true
	}
	if !have {
		return nil, nil
	}
	return nil, s.lastOlder(&prev)
}

// resumeAt returns the position from which to continue after a step that ended inside a cell: at
// the cell if it may contain more to delete, else after it, since all later records stay too.
func resumeAt(c Cell, more bool) *Cell {
	if more {
		c.Column += "\x00" // the lowest address above c: the first cell below it is c itself
	}
	return &c
}

// decide deletes the record if its successor, at next, is at or below the safepoint (in a dropped
// table, if the record itself is), and keeps it otherwise.
func (s *collecting) decide(cw *CellWrite, next Timestamp) (deleted bool) {
	// In a dropped table nobody reads, the newest at or below the safepoint goes as well.
	if next <= s.safepoint || (cw.Write.CommitTS <= s.safepoint && s.view.Dropped(cw.Cell.Table)) {
		s.dropRecord(GroupHistory, cw.Cell, cw.Write.CommitTS, &cw.Write)
		return true
	}
	s.keepRecord(cw.Cell, &cw.Write, next)
	return false
}

// lastOlder decides about the last entry of a cell that HistoryOf yields. An entry above the
// safepoint stays: HistoryOf has not shown whether its successor is in H or W, so it may be garbage
// from the next timestamp on. The successor of any other entry is in W.
func (s *collecting) lastOlder(cw *CellWrite) error {
	if cw.Write.CommitTS > s.safepoint {
		s.keepRecord(cw.Cell, &cw.Write, cw.Write.CommitTS+1)
		return nil
	}
	newest, ok, err := s.view.Newest(cw.Cell)
	if err != nil || !ok {
		return err
	}
	s.decide(cw, newest.CommitTS)
	return nil
}

// newest deletes a cell's newest record if it is a delete that no reader can miss: it is at or
// below the safepoint, hides no older record in H, no lock will be committed above it, and no
// observer has a pending notification of it. It also deletes the cell's acks, and keeps the record
// if one of them must stay. In a dropped table the record may be of any kind, and notifications do
// not count. In any other table a stray ack is deleted too (strayAck).
func (s *collecting) newest(c Cell) error {
	s.Looked++
	w, ok, err := s.view.Newest(c)
	if err != nil || !ok {
		return err
	}
	dropped := s.view.Dropped(c.Table)
	switch {
	case dropped || w.Kind == KindDelete:
	case c.Class == ClassAck:
		return s.strayAck(c, &w)
	default:
		s.keepRecord(c, &w, 0)
		return nil
	}
	deletable, err := s.deletable(c, &w)
	if err != nil {
		return err
	}
	var acks []CellWrite
	if deletable && !dropped && c.Class == ClassData {
		if deletable, acks, err = s.acks(c); err != nil {
			return err
		}
	}
	if !deletable {
		s.keepRecord(c, &w, w.CommitTS)
		return nil
	}
	s.dropRecord(GroupWrite, c, 0, &w)
	for i := range acks {
		s.dropRecord(GroupWrite, acks[i].Cell, 0, &acks[i].Write)
	}
	return nil
}

// deletable reports whether the cell's newest record, w, may be deleted: it is at or below the
// safepoint, H has no record of the cell that this step does not delete, and the cell has no lock
// and, unless its table is dropped, no notification.
func (s *collecting) deletable(c Cell, w *Write) (bool, error) {
	if w.CommitTS > s.safepoint {
		return false, nil
	}
	if _, locked := s.view.Lock(c); locked {
		return false, nil
	}
	if !s.view.Dropped(c.Table) && c.Class == ClassData {
		if dirty, err := s.dirty(c); err != nil || dirty {
			return false, err
		}
	}
	for older, err := range s.view.Older(c, MaxTimestamp) {
		if err != nil {
			return false, err
		}
		if _, gone := s.gone[CellAt{c, older.CommitTS}]; !gone {
			return false, nil
		}
	}
	return true, nil
}

// dirty reports whether an observer of the observed cell has a notification for it.
func (s *collecting) dirty(c Cell) (bool, error) {
	if _, dirty, err := s.view.Notification(c); err != nil || dirty {
		return dirty, err
	}
	for _, name := range s.view.Acks(c.Table, c.Column) {
		if w, _ := s.view.AckOf(c.Table, name); !w.Own {
			continue
		}
		own := Cell{Table: c.Table, Class: ClassAck, Row: c.Row, Column: name}
		if _, dirty, err := s.view.Notification(own); err != nil || dirty {
			return dirty, err
		}
	}
	return false, nil
}

// acks returns the newest records of the acknowledgments of a cell. ok is false if one of them must
// stay: a run that began before an acknowledgment above the safepoint must conflict with it, so
// that the change is not observed twice (§2.4).
func (s *collecting) acks(c Cell) (ok bool, acks []CellWrite, err error) {
	for _, name := range s.view.Acks(c.Table, c.Column) {
		ack := Cell{Table: c.Table, Row: c.Row, Class: ClassAck, Column: name}
		w, there, err := s.view.Newest(ack)
		if err != nil {
			return false, nil, err
		}
		if !there {
			if _, locked := s.view.Lock(ack); locked {
				return false, nil, nil
			}
			continue
		}
		if deletable, err := s.deletable(ack, &w); err != nil || !deletable {
			return false, nil, err
		}
		acks = append(acks, CellWrite{Cell: ack, Write: w})
	}
	return true, acks, nil
}

// strayAck deletes the ack of a cell that has no record, lock or notification. The replay of a deleted
// row leaves one.
func (s *collecting) strayAck(ack Cell, w *Write) error {
	of, ok := s.view.AckOf(ack.Table, ack.Column)
	if !ok || w.CommitTS > s.safepoint {
		return nil
	}
	c := of.ObservedCell(ack)
	if _, there, err := s.view.Newest(c); err != nil || there {
		return err
	}
	if _, locked := s.view.Lock(c); locked {
		return nil
	}
	if dirty, err := s.dirty(c); err != nil || dirty {
		return err
	}
	if deletable, err := s.deletable(ack, w); err != nil || !deletable {
		return err
	}
	s.dropRecord(GroupWrite, ack, 0, w)
	return nil
}

// locked deletes the cell's newest committed lock if it is below the safepoint. Transactions that
// could conflict with it began before it, and the bound refuses them.
func (s *collecting) locked(c Cell) error {
	s.Looked++
	w, there, err := s.view.PastLock(c, 0)
	switch {
	case err != nil || !there:
		return err
	case w.CommitTS < s.safepoint:
		s.drop(GroupLocked, c, 0)
	default:
		s.Kept = append(s.Kept, Garbage{Group: GroupLocked, Cell: c, From: w.CommitTS + 1})
	}
	return nil
}

// rollback deletes a rollback record if it is below the safepoint. One at the safepoint stays: the
// bound may not refuse its transaction's prewrite yet.
func (s *collecting) rollback(c Cell, start Timestamp) error {
	s.Looked++
	if start >= s.safepoint {
		s.Kept = append(s.Kept, Garbage{Group: GroupRollback, Cell: c, TS: start, From: start + 1})
		return nil
	}
	there, err := s.view.RolledBack(c, start)
	if err == nil && there {
		s.drop(GroupRollback, c, start)
	}
	return err
}
