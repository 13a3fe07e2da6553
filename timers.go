package percolator

import (
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// NotifyAfter is Notify with a delay: if the transaction commits, the weak observer of the
// column runs for the row, no earlier than d after the commit. It is a durable timer: it
// survives restarts, leader changes and the end of this process. It costs as much as a write
// of the transaction, independent of the number of timers.
//
// A timer fires once d has passed since the commit timestamp both by the oracle's time and by
// the clock of the node that leads meta. It usually fires within 250 ms of that, or
// within 1.25 s if no other timer was pending. It fires some seconds late if the oracle is ahead
// of the clock, as after a failover, while many timers are due, or while no node serves the
// observed row, and up to a minute late if the commit took more than two seconds. A non-positive d
// fires as soon as possible. Timers fire approximately in the order in which they are due; those
// of one row may collapse into one run, as all notifications do.
//
// A row may have several timers; those due in the same millisecond are one. A transaction cannot
// cancel or move a timer: record in the row what is due and when, and have the observer check that
// it still applies. Admin.Timers lists timers and Admin.CancelTimer cancels one. DB.WaitIdle and
// DB.Pending ignore timers that are not due. A backup by an operator contains the timers.
//
// The commit fails with an error that wraps ErrNotifyOnly if the column has no weak observer.
// A timer is dropped if its observer or table does not exist when it is due. If the observer
// is paused, the notification waits, as all do. Setting a timer needs write permission for
// the table.
func (tx *Tx) NotifyAfter(row string, col Column, d time.Duration) {
	tx.t.NotifyAfter(txn.Key{Table: col.Table, Row: row, Column: col.Name}, d)
}
