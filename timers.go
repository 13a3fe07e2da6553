package percolator

import (
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// NotifyAfter is Notify with a delay: it makes the weak observer of the column run for the
// row, if the transaction commits, and not before d after that. It is a durable timer: it
// survives restarts, a change of leaders and the end of this process, and is as cheap as a
// write of the transaction, however many are waiting.
//
// Precision: a timer fires when d has passed since the commit timestamp, by the cluster's
// time (the oracle's) and by the clock of the node that leads meta; never earlier, and usually
// within a quarter of a second, the first one within a second more. It fires some seconds later if the oracle is ahead, as after a
// failover, and while the cluster catches up with many that are due, while nobody serves the observed row,
// or if the transaction took more than two seconds to commit: then up to a minute. d ≤ 0
// means as soon as that. Timers fire roughly in the order in which they are due; those of
// one row may collapse into one run, as all notifications do.
//
// Several timers of a row are several, but one if they are due in the same millisecond. A
// timer cannot be cancelled or moved: write down in the row what is to happen and when, and
// let the observer look whether that is still so. While a timer is not due it is no
// notification: DB.WaitIdle and DB.Pending know nothing of it. It is in no backup.
//
// The commit fails with an error that wraps ErrNotifyOnly if the column has no weak observer.
// A timer whose observer or table is gone when it is due vanishes; while the observer is
// paused its notifications wait for it, as all do. Who may write the table may set timers.
func (tx *Tx) NotifyAfter(row string, col Column, d time.Duration) {
	tx.t.NotifyAfter(txn.Key{Table: col.Table, Row: row, Column: col.Name}, d)
}
