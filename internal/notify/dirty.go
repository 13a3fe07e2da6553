package notify

import "github.com/percolator-go/percolator/internal/mvcc"

// Dirty is a cell whose observer may have to run, as a scanner found it.
type Dirty struct {
	Cell mvcc.Cell
	// Notify is the cell's entry in the notify group as it was walked; nil for a hint,
	// which knows the cell only.
	Notify *mvcc.Notify
	// Held: the finder holds the advisory lock of the cell, or locks are not in use. What
	// is not held is not run, only collapsed into a run that is under way already.
	Held bool
	// Backlog: more cells of the column wait. A change that comes while this one runs
	// waits in line with them.
	Backlog bool
	// Done is called exactly once after an Accepted cell needs the advisory lock no more.
	// It must not block. May be nil.
	Done func()
}

// Admission is the dispatcher's answer for one dirty cell.
type Admission uint8

const (
	// Accepted: it will run, and Done will be called.
	Accepted Admission = iota
	// Collapsed: a run for the cell is queued or under way in this process and will take
	// note of it (§2.4, message collapsing).
	Collapsed
	// Deferred: the cell's last run failed and its backoff is not over.
	Deferred
	// Refused: not held, and not under way here.
	Refused
	// Full: the observer's queue is at its bound; offer it again later.
	Full
	// Unlinked: no observer of the column is registered in this process.
	Unlinked
	// Stopped: the dispatcher takes no more.
	Stopped
	// Paused: nothing of the column runs for now.
	Paused
)

// String is the admission's name, for logs.
func (a Admission) String() string {
	names := [...]string{"accepted", "collapsed", "deferred", "refused", "full", "unlinked", "stopped", "paused"}
	if int(a) < len(names) {
		return names[a]
	}
	return "unknown"
}

// Target is an observed column whose observer is registered in this process.
type Target struct {
	Table  mvcc.TableID
	Column string
	Weak   bool
}

// TargetOf is the column of a cell, as a key to look a target up by: its Weak is always false.
func TargetOf(c mvcc.Cell) Target { return Target{Table: c.Table, Column: c.Column} }
