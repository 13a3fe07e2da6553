package memory

import (
	"iter"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// The view for the evaluation of mutations. Each read consults the overlay first, then
// memory, then the Snap; the first that has the entry is right.

// EvalView is the view that mutations are evaluated on: the newest visible state, the lock
// table, and the overlay over both. It reflects changes of the memory immediately, and belongs
// to the same goroutine as the memory.
type EvalView struct {
	*store.Snap
	memory *Memory

	// read has the records that the operation has looked up in the Snap, in which they do not
	// change, in the order of the first lookups and at most cap(read) of them. at is the index of
	// the record returned last.
	read []cellRecord
	at   int
}

// cellRecord is the newest record of a cell, if it has one.
type cellRecord struct {
	cell  mvcc.Cell
	write mvcc.Write
	there bool
}

// Twice prepares the view for an operation that looks up the records of this many cells twice, in
// the same order: a one-phase commit does so for its check and for its effects.
func (v *EvalView) Twice(cells int) {
	if cap(v.read) < cells {
		v.read = make([]cellRecord, 0, cells)
	}
	v.read, v.at = v.read[:0], 0
}

// recorded returns the record of the cell if it is the one returned last or the one expected next.
func (v *EvalView) recorded(c mvcc.Cell) *cellRecord {
	if len(v.read) == 0 {
		return nil
	}
	if r := &v.read[v.at]; r.cell == c {
		return r
	}
	next := (v.at + 1) % len(v.read)
	if v.read[next].cell != c {
		return nil
	}
	v.at = next
	return &v.read[next]
}

var _ mvcc.CollectView = (*EvalView)(nil)

// Lock implements mvcc.CollectView.
func (v *EvalView) Lock(c mvcc.Cell) (mvcc.Lock, bool) {
	if m, ok := v.memory.overlay.get(mvcc.GroupLock, c, 0); ok {
		if m.Delete {
			return mvcc.Lock{}, false
		}
		return *m.Lock, true
	}
	return v.memory.locks.get(c)
}

// Locks iterates the locks and reservations, without the overlay. Mutations do not use it.
func (v *EvalView) Locks(s mvcc.Span, reverse bool) iter.Seq2[mvcc.Cell, mvcc.Lock] {
	return v.memory.locks.all(s, reverse)
}

// Newest implements mvcc.CollectView.
func (v *EvalView) Newest(c mvcc.Cell) (mvcc.Write, bool, error) {
	if m, ok := v.memory.overlay.get(mvcc.GroupWrite, c, 0); ok {
		if m.Delete {
			return mvcc.Write{}, false, nil
		}
		return *m.Write, true, nil
	}
	if r := v.recorded(c); r != nil {
		return r.write, r.there, nil
	}
	w, ok, err := v.Snap.Newest(c)
	if err == nil && len(v.read) < cap(v.read) {
		v.at, v.read = len(v.read), append(v.read, cellRecord{c, w, ok})
	}
	return w, ok, err
}

// Older implements mvcc.CollectView.
func (v *EvalView) Older(c mvcc.Cell, atOrBelow mvcc.Timestamp) iter.Seq2[mvcc.Write, error] {
	return v.memory.overlay.older(c, atOrBelow, v.Snap.Older(c, atOrBelow))
}

// Data implements mvcc.CollectView.
func (v *EvalView) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	if m, ok := v.memory.overlay.get(mvcc.GroupData, c, start); ok {
		return m.Value, !m.Delete, nil
	}
	return v.Snap.Data(c, start)
}

// PastLock implements mvcc.CollectView.
func (v *EvalView) PastLock(c mvcc.Cell, from mvcc.Timestamp) (mvcc.Write, bool, error) {
	// Nearly every write gets here, and only locks without a write leave past locks.
	if v.memory.pastLocks.none(from) {
		return mvcc.Write{}, false, nil
	}
	if m, ok := v.memory.overlay.get(mvcc.GroupLocked, c, 0); ok {
		if m.Delete || m.Write.CommitTS < from {
			return mvcc.Write{}, false, nil
		}
		return *m.Write, true, nil
	}
	return v.Snap.PastLock(c, from)
}

// RolledBack implements mvcc.CollectView.
func (v *EvalView) RolledBack(c mvcc.Cell, start mvcc.Timestamp) (bool, error) {
	if m, ok := v.memory.overlay.get(mvcc.GroupRollback, c, start); ok {
		return !m.Delete, nil
	}
	// Nearly every commit gets here, and a lookup that finds nothing is slow.
	if v.memory.rollbacks.none(start) {
		return false, nil
	}
	return v.Snap.RolledBack(c, start)
}

// Raw implements mvcc.CollectView.
func (v *EvalView) Raw(c mvcc.Cell) ([]byte, bool, error) {
	if m, ok := v.memory.overlay.get(mvcc.GroupRaw, c, 0); ok {
		return m.Value, !m.Delete, nil
	}
	return v.Snap.Raw(c)
}

// Observed implements mvcc.CollectView.
func (v *EvalView) Observed(t mvcc.TableID, column string) mvcc.Observation {
	return v.memory.Catalogue.Observed(t, column)
}

// HistoryOf implements mvcc.CollectView. It omits entries whose deletion is in flight, so that
// the next step of collection does not delete them again. History that is still in flight is
// left to a later pass.
func (v *EvalView) HistoryOf(cells []mvcc.CellAt, upTo mvcc.Timestamp) iter.Seq2[mvcc.CellWrite,
	error] {
	return func(yield func(mvcc.CellWrite, error) bool) {
		for cw, err := range v.Snap.HistoryOf(cells, upTo) {
			if m, ok := v.memory.overlay.get(mvcc.GroupHistory, cw.Cell, cw.Write.CommitTS); ok &&
				m.Delete && err == nil {
				continue
			}
			if !yield(cw, err) {
				return
			}
		}
	}
}

// Acks implements mvcc.CollectView.
func (v *EvalView) Acks(t mvcc.TableID, column string) []string {
	return v.observers().Acks(t, column)
}

// AckOf implements mvcc.CollectView.
func (v *EvalView) AckOf(t mvcc.TableID, observer string) (mvcc.Watch, bool) {
	return v.observers().AckOf(t, observer)
}

// Dropped implements mvcc.CollectView.
func (v *EvalView) Dropped(t mvcc.TableID) bool { return v.observers().Dropped(t) }
func (v *EvalView) observers() Observers        { return v.memory.Catalogue.At(v.memory.Safepoint) }

// Bound implements mvcc.CollectView.
func (v *EvalView) Bound() mvcc.Timestamp { return v.memory.Bound }

// Safepoint implements mvcc.CollectView.
func (v *EvalView) Safepoint() mvcc.Timestamp { return v.memory.Safepoint }

// Notification returns the cell's notification, if there is one.
func (v *EvalView) Notification(c mvcc.Cell) (mvcc.Notify, bool, error) {
	if m, ok := v.memory.overlay.get(mvcc.GroupNotify, c, 0); ok {
		if m.Delete {
			return mvcc.Notify{}, false, nil
		}
		return *m.Notify, true, nil
	}
	col, err := v.memory.observed(mvcc.ColumnOf(c))
	if err != nil {
		return mvcc.Notify{}, false, err
	}
	if col != nil && col.notifies != nil {
		n, ok := col.notifies.Get(mvcc.CellNotify{Cell: c})
		return n.Notify, ok, nil
	}
	return v.Snap.Notification(c)
}

// Intent returns the weak intent of transaction start on the cell.
func (v *EvalView) Intent(c mvcc.Cell, start mvcc.Timestamp) (mvcc.Intent, bool, error) {
	if m, ok := v.memory.overlay.get(mvcc.GroupIntent, c, start); ok {
		if m.Delete {
			return mvcc.Intent{}, false, nil
		}
		return *m.Intent, true, nil
	}
	col, err := v.memory.observed(mvcc.ColumnOf(c))
	if err != nil {
		return mvcc.Intent{}, false, err
	}
	if col != nil && col.intents != nil {
		i, ok := col.intents.Get(mvcc.CellIntent{Cell: c, StartTS: start})
		return i.Intent, ok, nil
	}
	return v.Snap.Intent(c, start)
}
