package tablet

import (
	"iter"

	"github.com/tidwall/btree"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// notifyView is an immutable copy of one column of the notify index, for a read worker.
type notifyView struct {
	notifies                 *btree.BTreeG[mvcc.CellNotify] // nil: walk the disk
	queue                    *btree.BTreeG[evaluate.Queued] // nil: the order is not known
	intents                  *btree.BTreeG[mvcc.CellIntent] // nil: walk the disk
	pending, parked, waiting int                            // entries of N that are not parked, that are; entries of I
	oldest                   mvcc.Timestamp
	uncounted                bool
}

// notifyViews copies the columns that the reads look at; nil, at no cost, if there are none.
func (t *Tablet) notifyViews(calls []*Call) map[columnKey]notifyView {
	var views map[columnKey]notifyView
	add := func(key columnKey, walked bool) {
		c := t.observedNotifies(key)
		if c == nil {
			return
		}
		if views == nil {
			views = map[columnKey]notifyView{}
		}
		v := views[key]
		v.pending, v.parked, v.waiting, v.oldest, v.uncounted = c.pending, c.parked, c.tally.intents, c.ages.oldest(), c.uncounted
		if walked && c.notifies != nil {
			v.notifies = c.notifies.Copy()
		}
		// An empty queue of a column that has more says nothing of the rest.
		if q := c.queue; walked && q != nil && (!q.lost || q.tree.Len() > 0) {
			v.queue = q.tree.Copy()
		}
		if walked && c.intents != nil {
			v.intents = c.intents.Copy()
		}
		views[key] = v
	}
	for _, call := range calls {
		switch op := call.Req.Op.(type) {
		case *pb.TabletRequest_Walk:
			t.loadObserved()
			if g := mvcc.Group(op.Walk.GetGroup()); g == mvcc.GroupNotify || g == mvcc.GroupIntent {
				add(columnKey{mvcc.TableID(op.Walk.GetTable()), wire.String(op.Walk.GetColumn())}, true)
			}
		case *pb.TabletRequest_Pending:
			for _, o := range t.catalogue.message.GetObservers() {
				if key := observerKey(o); !retained(views, key) {
					add(key, false)
				}
			}
		}
	}
	return views
}

func retained(views map[columnKey]notifyView, key columnKey) bool {
	_, ok := views[key]
	return ok
}

func observerKey(o *pb.ObserverInfo) columnKey {
	return columnKey{mvcc.TableID(o.GetTable()), wire.String(o.GetColumn())}
}

// Notifies iterates the column's notifications from fromRow on, or from the row after it,
// out of memory if they are there.
func (v *readView) Notifies(t mvcc.TableID, column, fromRow string, after bool) iter.Seq2[mvcc.CellNotify, error] {
	tree := v.notify[columnKey{t, column}].notifies
	if tree == nil {
		return v.Snap.Notifies(t, column, fromRow, after)
	}
	return func(yield func(mvcc.CellNotify, error) bool) {
		tree.Ascend(mvcc.CellNotify{Cell: mvcc.Cell{Row: fromRow}}, func(n mvcc.CellNotify) bool {
			return (after && n.Cell.Row == fromRow) || yield(n, nil)
		})
	}
}

// Intents iterates the column's intents from fromRow on, out of memory if they are there.
func (v *readView) Intents(t mvcc.TableID, column, fromRow string) iter.Seq2[mvcc.CellIntent, error] {
	tree := v.notify[columnKey{t, column}].intents
	if tree == nil {
		return v.Snap.Intents(t, column, fromRow)
	}
	return func(yield func(mvcc.CellIntent, error) bool) {
		tree.Ascend(mvcc.CellIntent{Cell: mvcc.Cell{Row: fromRow}}, func(i mvcc.CellIntent) bool { return yield(i, nil) })
	}
}

// Notification is the cell's entry in N.
func (v *evalView) Notification(c mvcc.Cell) (mvcc.Notify, bool, error) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupNotify, c, 0); ok {
		if m.Delete {
			return mvcc.Notify{}, false, nil
		}
		return *m.Notify, true, nil
	}
	if col := v.tablet.observedNotifies(keyOfCell(c)); col != nil && col.notifies != nil {
		n, ok := col.notifies.Get(mvcc.CellNotify{Cell: c})
		return n.Notify, ok, nil
	}
	return v.Snap.Notification(c)
}

// Intent is the weak intent of transaction start on the cell.
func (v *evalView) Intent(c mvcc.Cell, start mvcc.Timestamp) (mvcc.Intent, bool, error) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupIntent, c, start); ok {
		if m.Delete {
			return mvcc.Intent{}, false, nil
		}
		return *m.Intent, true, nil
	}
	if col := v.tablet.observedNotifies(keyOfCell(c)); col != nil && col.intents != nil {
		i, ok := col.intents.Get(mvcc.CellIntent{Cell: c, StartTS: start})
		return i.Intent, ok, nil
	}
	return v.Snap.Intent(c, start)
}
