// Package observer runs user code when observed cells have changed (§2.4). A dispatcher on
// each node takes dirty cells from those who find them, keeps them in bounded queues, and
// starts one invocation actor per run on a bounded pool.
//
// Invariants:
//
//  1. At most one transaction of a strong observer commits per change. The transaction that
//     runs the user's function reads the observed cell's newest write record and the
//     acknowledgment, runs only if commit_ts > ack, and sets the acknowledgment to its own
//     start timestamp in the same commit. Two runs at once conflict on the acknowledgment.
//
//  2. A replay counts as a change at the timestamp of its notify entry: it is due while that
//     is above the acknowledgment. So a replay is committed at most once, too. Whoever marks
//     a row for replay takes a fresh timestamp for it.
//
//  3. A notification is cleared only up to the start timestamp of a run known to have
//     committed, or, by a check that found the cell clean, up to the timestamp of the entry
//     that was checked. Anything newer stays (invariant 12 of the design).
//
//  4. A notification is never dropped. A run that fails, panics or passes its deadline is
//     counted in the notify entry and tried again after an exponential backoff; after
//     MaxAttempts it is parked with the error. Conflicts of the run's own transaction and
//     nodes that do not answer are not counted; conflicts that the function returns from
//     transactions of its own are its errors like any other. Runs of a row that fail
//     dozens of times in a row without being counted are logged, and every MaxConflicts-th
//     counts as a failure after all, unless the run's own transaction found no node to serve it.
//     Nothing is retried without a pause. A row that runs hundreds of times within seconds
//     is logged, too. If a process that has died since may have met the change
//     (Config.Suspect), the run is counted before it begins, so that a row which ends its
//     processes is parked after MaxAttempts of them. Rows that were running when a process
//     ended run one at a time, so that no other is parked with it. The death of the process
//     during which the change was made is not counted.
//
//  5. In one process there is at most one run per cell that can still commit. Changes that
//     arrive meanwhile are collapsed into the next run.
//
//  6. Everything is bounded: the runs at once by Workers and each observer's Concurrency, the
//     waiting cells by Queue, those of an observer that rest for its debounce by as many
//     again, each run by its Deadline. A function that ignores its context
//     holds only its slot, which is replaced, up to MaxStuck slots of all observers and the
//     limit of its own. When these are used up its observer stops, as its Stats show; every
//     other observer keeps at least one slot.
//
//  7. Only observers registered in this process run here. While an observer is paused
//     (Control) no run starts, and its queued cells are forgotten, with their memory and
//     advisory locks.
//
//  8. A batch, of an observer that takes several changes in one transaction, keeps all of
//     this for each of them: it reads and sets each cell's acknowledgment. One that comes to
//     nothing counts for none of them; it is run again in halves, and a change that fails
//     alone is counted and parked alone. So are changes that the function of a batch names,
//     once its transaction has committed without their acknowledgments. A batch has what
//     waits, and waits for nothing.
//
// The dispatcher is an actor and never blocks. Invocation actors may block, because nothing
// else is ever sent to them.
//
// Package node spawns the dispatcher and connects scanners to it. A crash loses the queues
// and the backoffs; the notifications are in the tablets, and the next scan finds them. For
// how long a cell has rested its timestamp says (debounce.go). A crash between a run's commit
// and its clearing costs one check that finds the cell clean (strong), or one more run (weak).
package observer
