package memory

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// notifyQueue is the order in which a column's notifications are passed to scanners: first
// come, first served. A notification has its place from when its cell became dirty and keeps it
// when the cell changes again, so that frequent changes do not starve a cell. It moves to the
// end when a run has failed, and when a run has left it for a newer change; parked
// notifications have no place. The order exists only in the leader's memory: a new leader
// starts with that of the timestamps. Only fairness depends on it.
//
// It belongs to the column of the index, and so to the tablet's actor; readers have copies of
// its tree. It holds as many notifications as the index may; those that arrive while it is full
// are not in it (lost is set then), and are read from disk, in the order of rows, once there is
// room (Refill).
type notifyQueue struct {
	next   uint64            // next place; the first is 1
	places map[string]uint64 // by row
	tree   *btree.BTreeG[evaluate.Queued]
	lost   bool
}

func newNotifyQueue() *notifyQueue {
	less := func(a, b evaluate.Queued) bool { return a.Place < b.Place }
	return &notifyQueue{
		places: map[string]uint64{},
		tree:   btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
	}
}

// queueOf returns a queue of all notifications in the column's tree that are not parked, in the
// order of the timestamps: a new leader does not know in which order cells became dirty.
func queueOf(tree *btree.BTreeG[mvcc.CellNotify]) *notifyQueue {
	q := newNotifyQueue()
	all := tree.Items()
	slices.SortStableFunc(all, func(a, b mvcc.CellNotify) int {
		return cmp.Compare(a.Notify.TS, b.Notify.TS)
	})
	for i := range all {
		if all[i].Notify.ParkedTS == 0 {
			q.put(all[i], len(all))
		}
	}
	return q
}

// change applies a change of a cell's notification; most limits the length of the queue.
func (q *notifyQueue) change(ch *Change, most int) {
	row := ch.cell.Row
	place, there := q.places[row]
	switch {
	// The notification was deleted or parked.
	case ch.after == nil || ch.after.ParkedTS != 0:
		q.drop(row)
	// The cell has changed again: its notification keeps its place.
	case there && ch.before != nil && ch.after.Attempts <= ch.before.Attempts:
		q.tree.Set(evaluate.Queued{
			Place: place, Notify: mvcc.CellNotify{Cell: ch.cell, Notify: *ch.after},
		})
	// The notification is new, or another run for it has failed.
	default:
		q.drop(row)
		q.put(mvcc.CellNotify{Cell: ch.cell, Notify: *ch.after}, most)
	}
}

// put appends a notification, unless the queue is full, or was full and has not been completely
// refilled since.
func (q *notifyQueue) put(n mvcc.CellNotify, most int) {
	if q.lost || q.tree.Len() >= most {
		q.lost = true // a later notification must not be queued before this one
		return
	}
	q.add(n)
}

// add appends a notification.
func (q *notifyQueue) add(n mvcc.CellNotify) {
	q.next++
	q.places[n.Cell.Row] = q.next
	q.tree.Set(evaluate.Queued{Place: q.next, Notify: n})
}

// drop removes the row's notification, if it is in the queue.
func (q *notifyQueue) drop(row string) {
	if place, there := q.places[row]; there {
		q.tree.Delete(evaluate.Queued{Place: place})
		delete(q.places, row)
	}
}

// back moves the row's notification, if it has one, to the end.
func (q *notifyQueue) back(row string) {
	place, there := q.places[row]
	if !there || place == q.next {
		return
	}
	n, _ := q.tree.Delete(evaluate.Queued{Place: place})
	q.add(n.Notify)
}
