package notify

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Dirty is a cell whose observer may have to run, found by a scanner or named by a hint. Finder and
// dispatcher share Notify; neither changes it.
type Dirty struct {
	// Cell is the notify cell: the observed cell, or, if the observer has notify entries of its
	// own, its acknowledgment cell.
	Cell mvcc.Cell
	// Notify is the cell's entry in mvcc.GroupNotify as it was read, or nil for a hint.
	Notify *mvcc.Notify
	// Held means that the finder holds the cell's advisory lock, or that locks are not in use.
	// A cell that is not held is only collapsed into a run that this process already has for it,
	// queued, delayed or running; it does not start one.
	Held bool
	// Backlog means that more cells of the column are pending. A change of this cell during
	// its run is then queued behind them.
	Backlog bool
	// Done, unless nil, is called exactly once when an Accepted cell no longer needs the
	// advisory lock. It must not block.
	Done func()
	// Waits, unless nil, is called at most once, before Done, when an Accepted cell starts to
	// wait for its observer's debounce. It then still needs the advisory lock but no longer a
	// slot of the finder. Waits must not block.
	Waits func()
}

// Admission is the dispatcher's answer for one dirty cell.
type Admission uint8

const (
	// Accepted means that the dispatcher has taken the cell and will call Done: after the observer has
	// run, or once it finds the cell clean, or drops it and leaves it dirty.
	Accepted Admission = iota
	// Collapsed means that a run for the cell is queued, delayed (debounce, backoff) or running in
	// this process and will see the change (§2.4, message collapsing).
	Collapsed
	// Deferred means that the cell's last run failed and its backoff is not over, or that the cell
	// has changed within its observer's debounce and the dispatcher already has as many such cells
	// of the observer as it keeps: offer it again later.
	Deferred
	// Refused means that the cell is not Held and this process has no run for it.
	Refused
	// Full means that the observer's queue is full; offer the cell again later.
	Full
	// Unlinked means that no observer of the column is registered in this process.
	Unlinked
	// Stopped means that the dispatcher has stopped.
	Stopped
	// Paused means that an operator has paused or retired the column's observer.
	Paused
)

// String returns the admission's name, for logs.
func (a Admission) String() string {
	names := [...]string{
		"accepted", "collapsed", "deferred", "refused", "full", "unlinked", "stopped", "paused",
	}
	if int(a) < len(names) {
		return names[a]
	}
	return "unknown"
}

// Target is an observer registered in this process, by the column of its notify cells: the
// observed column, or, of ClassAck, that of its acknowledgments.
type Target struct {
	Table  mvcc.TableID
	Class  mvcc.Class
	Column string
	Weak   bool
	// Debounce is the time for which a cell must be unchanged before its run. Until then scanners
	// skip it, because a dispatcher that received a hint may have it, except in one turn per
	// Debounce, or per minute if that is shorter.
	Debounce time.Duration
	// Enough is the maximum number of cells that the dispatcher can use: the cells of all
	// concurrent runs and the candidates for the next runs. Scanners submit no more.
	Enough int
}

// Key returns the target as a key for looking up targets: the column alone.
func (t Target) Key() Target { return Target{Table: t.Table, Class: t.Class, Column: t.Column} }

// TargetOf returns the column of a notify cell as a key for looking up targets.
func TargetOf(c mvcc.Cell) Target {
	return Target{Table: c.Table, Class: c.Class, Column: c.Column}
}
