package percolator

import (
	"time"
)

// This file has the options of an observer that say when its runs begin, and when a run
// that comes to nothing counts. They only set fields of ObserverSpec; the dispatcher of
// each node reads them (actors/observer).

// DefaultMaxConflicts is the default of ObserverSpec.MaxConflicts.
const DefaultMaxConflicts = 64

// longestDebounce is the longest time that Debounce may be given.
const longestDebounce = 24 * time.Hour

// MaxConflicts is how many runs in a row may come to nothing for one row before they count
// as one failed run, on the way to MaxAttempts and parking; default 64. Those are runs
// whose transaction met another one's writes or locks (ErrConflict, ErrLocked), and those
// whose function returned an error that wraps ErrUnavailable. A run that commits, or that
// fails, begins the count anew. Runs that only found no node to serve their transaction
// never count.
//
// Between the runs there are pauses of 2 ms to half a second, growing: 64 runs take about
// 20 s. Less than ten makes rows fail that are only busy.
func MaxConflicts(n int) ObserverOption { return func(o *ObserverSpec) { o.MaxConflicts = n } }

// Priority makes the observer run first for the rows of which f returns the greatest
// number; rows of the same number run in the order in which they came. Without it that is
// the order of all rows.
//
// It orders what waits for this observer in one process: a few hundred rows, at most 4,096.
// If more have changed, the others wait in the tablets, which hand out the oldest first
// and know nothing of priorities. So a high priority overtakes what is queued, not a whole
// backlog. Nothing starves: every eighth run is for the row that has been queued for the
// longest, whatever its priority is.
//
// f is called once each time a row is queued, and not again for changes that come while it
// is queued or is tried again. Of the notification it gets Row and Column; TS is 0 if the
// node does not know yet when the row changed. f must be quick and must not block, as it
// holds up all observers of the process: it should look at the row's name, or at memory.
// A panic is logged and counts as priority 0.
func Priority(f func(Notification) int) ObserverOption {
	return func(o *ObserverSpec) { o.Priority = f }
}

// Debounce makes the observer run for a row once its observed cell has not changed for d:
// each change within d puts the run off, so that one run takes in all of them. A cell that
// never rests for so long runs all the same when it has waited for 10·d, counted from when
// a node took up its first change. d is at most a day; 0, the default, is no debounce.
//
// Nothing is lost when a node ends: the change stays marked in its tablet, and whoever
// takes it up next counts d from the time of the newest change. A failed run, and one that
// met a conflict, is tried again after its own backoff. Replayed rows wait like changed
// ones. While a cell waits it takes no slot of Concurrency; DB.WaitIdle waits for it.
// Where many cells of an observer wait (4,096 in a process), others are taken up when they
// have rested, up to a second later, and the bound of 10·d begins only then.
func Debounce(d time.Duration) ObserverOption { return func(o *ObserverSpec) { o.Debounce = d } }
