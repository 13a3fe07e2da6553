package memory

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// lockTable is the leader's in-memory copy of the lock group (the paper's "in-memory
// columns"), plus the reservations of one-phase commits and asynchronous prewrites. It contains
// what is applied, never what is only proposed. Only the tablet's turns change it; view returns an
// immutable copy in constant time, since the tree copies shared nodes when it changes them.
type lockTable struct {
	tree    *btree.BTreeG[lockEntry]
	applied int        // number of locks, not counting reservations
	copied  *lockTable // result of view since the last change; nil: none
}

// lockEntry is a cell's lock. Every comparison copies two entries, hence the pointer. The
// lock is immutable.
type lockEntry struct {
	cell         mvcc.Cell
	lock         *mvcc.Lock
	commitsAbove mvcc.Timestamp
}

// lessCell orders cells as the store does, by table, row, class and column, so that the locks
// of a span are contiguous.
func lessCell(a, b mvcc.Cell) bool {
	if a.Table != b.Table {
		return a.Table < b.Table
	}
	if c := strings.Compare(a.Row, b.Row); c != 0 {
		return c < 0
	}
	if a.Class != b.Class {
		return a.Class < b.Class
	}
	return a.Column < b.Column
}

func newLockTable() *lockTable {
	less := func(a, b lockEntry) bool { return lessCell(a.cell, b.cell) }
	return &lockTable{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// view returns an immutable copy, the same one until the table changes.
func (t *lockTable) view() *lockTable {
	if t.copied == nil {
		t.copied = &lockTable{tree: t.tree.Copy(), applied: t.applied}
	}
	return t.copied
}

// get returns the cell's lock or reservation.
func (t *lockTable) get(c mvcc.Cell) (mvcc.Lock, bool) {
	if t.tree.Len() == 0 { // usual when nobody writes
		return mvcc.Lock{}, false
	}
	e, ok := t.tree.Get(lockEntry{cell: c})
	if !ok {
		return mvcc.Lock{}, false
	}
	return *e.lock, true
}

// put sets the cell's lock to l, replacing an existing one. l must not change afterwards: copies
// of the tree share it. commitsAbove is the lock's CommitsAbove if it is new; a lock that replaces
// one of the same transaction, as by a heartbeat, keeps the CommitsAbove of the replaced one: the
// client may have requested its commit timestamp since.
func (t *lockTable) put(c mvcc.Cell, l *mvcc.Lock, commitsAbove mvcc.Timestamp) {
	t.copied = nil
	before, replaced := t.tree.Set(lockEntry{c, l, commitsAbove})
	if replaced {
		t.count(before.lock, -1)
		if before.lock.StartTS == l.StartTS {
			t.tree.Set(lockEntry{c, l, before.commitsAbove})
		}
	}
	t.count(l, 1)
}

// count adds n to the number of applied locks, unless the lock is a reservation.
func (t *lockTable) count(l *mvcc.Lock, n int) {
	if l.Token == 0 {
		t.applied += n
	}
}

// dropFrom removes the locks of a cell and of all cells after it.
func (t *lockTable) dropFrom(from mvcc.Cell) {
	// The tree must not change during iteration.
	var gone []lockEntry
	t.tree.Ascend(lockEntry{cell: from}, func(e lockEntry) bool {
		gone = append(gone, e)
		return true
	})
	for _, e := range gone {
		t.remove(e.cell, e.lock.Token)
	}
}

// remove removes the cell's lock if it is the expected one: never by cell alone (design
// section 3). A token of 0 means an applied lock, any other the reservation with that token.
func (t *lockTable) remove(c mvcc.Cell, token uint64) {
	// The lock nearly always is the expected one: deleting first saves a search.
	e, ok := t.tree.Delete(lockEntry{cell: c})
	switch {
	case !ok:
	case e.lock.Token != token:
		t.tree.Set(e)
	default:
		t.copied = nil
		t.count(e.lock, -1)
	}
}

// all iterates the locks with rows in the span; with reverse, in descending order.
func (t *lockTable) all(s mvcc.Span, reverse bool) iter.Seq2[mvcc.Cell, mvcc.Lock] {
	return func(yield func(mvcc.Cell, mvcc.Lock) bool) {
		visit := func(e lockEntry) bool {
			l := *e.lock
			l.CommitsAbove = e.commitsAbove
			return yield(e.cell, l)
		}
		if !reverse {
			t.tree.Ascend(lockEntry{cell: mvcc.Cell{Table: s.Table, Row: s.Start}},
				func(e lockEntry) bool {
					return e.cell.Table == s.Table && s.Contains(e.cell.Row) && visit(e)
				})
			return
		}
		// The iteration begins at the first cell after the span, which is not part of it.
		descend := func(e lockEntry) bool {
			if e.cell.Table > s.Table ||
				(e.cell.Table == s.Table && s.HasEnd && e.cell.Row >= s.End) {
				return true // the cell after the span has a lock: skip it
			}
			return e.cell.Table == s.Table && s.Contains(e.cell.Row) && visit(e)
		}
		end := mvcc.Cell{Table: s.Table + 1}
		if s.HasEnd {
			end = mvcc.Cell{Table: s.Table, Row: s.End}
		}
		t.tree.Descend(lockEntry{cell: end}, descend)
	}
}
