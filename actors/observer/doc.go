// Package observer runs user code when observed cells have changed (§2.4). The
// dispatcher of each process accepts dirty cells from scanners and hints, keeps them in bounded
// queues, and starts one invocation actor per batch of runs on a bounded pool.
//
// Invariants:
//
//  1. At most one transaction of a strong observer commits per change. The transaction that
//     runs the user's function reads the observed cell's newest write record and the
//     acknowledgment, runs only if commit_ts > ack, and sets the acknowledgment to its own
//     start timestamp in the same commit. Concurrent runs conflict on the
//     acknowledgment.
//
//  2. A replay counts as a change at the timestamp of its notify entry: it is due while that
//     is above the acknowledgment. A replay therefore commits at most once, too. The request
//     for a replay obtains a new timestamp from the oracle.
//
//  3. A notification is cleared only up to the start timestamp of a run known to have
//     committed, or, by a check that found the cell clean, up to the timestamp of the entry
//     that was checked. Anything newer stays.
//
//  4. A notification is never dropped. A run that fails, panics or exceeds its deadline is
//     counted in the notify entry and retried after an exponential backoff; after
//     MaxAttempts it is parked with the error. Conflicts of the run's own transaction and
//     unavailable nodes are not counted; conflicts that the function returns from its own
//     transactions are counted like any error. A change that may have been parked since it was found
//     is read again before its run (parking.go). Dozens of consecutive uncounted runs of a row
//     are logged, and every MaxConflicts-th counts as a failure, unless the run's own
//     transaction found no node to serve it. Every retry is preceded by a backoff, except that of
//     a batch whose function has failed or does not return. Hundreds of runs of a row within
//     seconds are logged, too, and runs that a row causes itself wait with growing pauses after
//     LoopRuns of them (loops.go). If a process that has died since may have run the change
//     (Config.Suspect), the run is counted before it starts, so that a row
//     that crashes its processes is parked after MaxAttempts crashes. Rows that were running
//     when a process crashed run one at a time, so that no other row is parked with the
//     faulty one. The crash of the process that ran while the change was written is not counted.
//
//  5. In one process there is at most one run per cell that can still commit. Changes that
//     arrive during a run are collapsed into the next one.
//
//  6. Concurrent batches are bounded by Workers, and one more of each observer that has none, and
//     by each observer's Concurrency; an observer's queued cells by Queue, those in debounce by
//     Queue again; and each run by its Deadline.
//     A function that ignores its context holds only its slot, which is replaced, up to
//     MaxStuck slots of all observers and the limit of its own observer. When these are used
//     up its observer stops, as its Stats show; every other observer keeps at least one slot.
//
//  7. Only observers registered in this process run here. While an observer is paused
//     (Control) no run starts, and its queued cells are dropped, with their memory and
//     advisory locks.
//
//  8. A batch, which handles several changes in one transaction, keeps these invariants for
//     each change: it reads and sets each cell's acknowledgment. A failed batch counts for none
//     of its changes; it is split in halves, and a change that fails alone is counted and
//     parked alone. So are the changes that a batch's function reports as failed, once its
//     transaction has committed without their acknowledgments. A batch consists of cells
//     already queued and does not wait for more.
//
//  9. A run that an external service refuses (percolator.RetryAfter) counts as nothing and splits no
//     batch, however often it is refused. During the wait no run of its observer starts here, nor,
//     once they are told, on the other nodes (outside.go, docs/adr/0066).
//
// The dispatcher is an actor and never blocks. Invocation actors may block, because they
// receive no further messages.
//
// Package node spawns the dispatcher and connects scanners to it; package internal/worker spawns
// one that nodes offer cells to. A crash loses the queues
// and the backoffs; the notifications are in the tablets, and the next scan finds them. The
// age of a change for the debounce follows from its timestamp (debounce.go). A crash between a run's commit
// and its clearing costs one check that finds the cell clean (strong), or one more run (weak).
//
// # Reading order
//
// From a call of the dispatcher to a run and its end: most calls go to later files.
//
// dispatcher.go, status.go, rows.go, relink.go, control.go, schedule.go, outside.go, debounce.go,
// actor.go, invocation.go, batch.go, run.go, charge.go, outcome.go, parking.go, loops.go,
// frequent.go, entry.go, effects.go, stats.go, client.go, config.go.
package observer
