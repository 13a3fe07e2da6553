package percolator

import "time"

// Options for the scheduling of an observer's runs and the counting of conflicts. They only
// set fields of ObserverSpec, which the dispatcher of each node (actors/observer) reads.

// DefaultMaxConflicts is the default of ObserverSpec.MaxConflicts.
const DefaultMaxConflicts = 64

// maxDebounce is the upper limit of Debounce.
const maxDebounce = 24 * time.Hour

// MaxConflicts sets the number of consecutive conflicts of one row that count as one failed
// run towards MaxAttempts. Defaults to 64. A conflict is a run whose transaction ends with
// ErrConflict or ErrLocked, or whose function returns an error that wraps ErrUnavailable,
// ErrOverloaded or ErrCommitUnknown. A commit or a failed run resets the count. Runs for which
// no node served the transaction do not count.
//
// The backoff between the runs grows from 2 ms to 500 ms, so that 64 runs take about 20 s.
// With fewer than ten, rows that are merely contended fail.
func MaxConflicts(n int) ObserverOption { return func(o *ObserverSpec) { o.MaxConflicts = n } }

// Priority orders the queued rows of the observer by f, highest first, and rows of equal
// priority by arrival. By default all rows run in the order of arrival.
//
// Priorities apply to the rows queued in one process: a few hundred, at most 4,096. Further
// changed rows wait in the tablets, which hand out the oldest first regardless of priority.
// A high priority thus overtakes the queue, not a whole backlog. Every eighth run is for the
// row that has been queued longest, so that no row starves.
//
// The dispatcher calls f once when it queues a row, and not again for changes or retries
// while the row is queued. CommitTS of the notification is 0 if the node does not know the time of
// the change yet. f must not block, since it delays all observers of the process: base it on the
// row's name or on data in memory. A panic is logged and counts as priority 0.
func Priority(f func(Notification) int) ObserverOption {
	return func(o *ObserverSpec) { o.Priority = f }
}

// Debounce delays the run for a row until its observed cell has not changed for d, so that
// one run handles a burst of changes. The run starts after 10·d at the latest, counted from
// when a node queued the first of them. d is at most 24 h; the default, 0, disables
// debouncing.
//
// No change is lost when a node stops: the notification stays in its tablet, and the node
// that queues it next counts d from the newest change. Retries after failures and conflicts
// use their own backoff. Replayed rows are debounced like changed ones. A delayed cell
// occupies no slot of Concurrency; DB.WaitIdle waits for it. A process delays up to 4,096
// cells of an observer; it queues further cells only once they have not changed for d, up to
// a second late, and their bound of 10·d starts then.
func Debounce(d time.Duration) ObserverOption { return func(o *ObserverSpec) { o.Debounce = d } }

// Version sets the version of the observer's function, from 0, the default, to 2^31-1. Raise it
// when a changed function would write something else for unchanged rows. Each run of a strong
// observer stores the version of its own process with its acknowledgment, so that processes of two
// versions may run concurrently, and a program may be rolled back. Admin.ReplayObserver with
// BelowVersion then runs the observer again for the rows whose last run was of an older version. A
// weak observer has no acknowledgments: its version is only displayed. Until all nodes of the
// cluster run a build that supports versions, and `percolator cluster finalize` has been run,
// acknowledgments have version 0.
func Version(n int) ObserverOption { return func(o *ObserverSpec) { o.Version = n } }
