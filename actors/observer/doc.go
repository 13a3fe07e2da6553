// Package observer runs user code when observed cells have changed (§2.4): a dispatcher
// per node takes dirty cells from those who find them, keeps them in bounded queues, and
// starts one invocation actor per run on a bounded pool.
//
// Invariants:
//  1. At most one transaction of a strong observer commits per change: the transaction that runs the user's function reads
//     the observed cell's newest write record and the acknowledgment, runs only if commit_ts > ack, and sets the
//     acknowledgment to its own start timestamp in the same commit. Two runs at once conflict on the acknowledgment.
//  2. A replay counts as a change at the timestamp of its notify entry: it is due while that is above the acknowledgment.
//     So a replay, too, is committed at most once. Whoever marks a row for replay takes a fresh timestamp for it.
//  3. A notification is cleared only up to the start timestamp of a run known committed, or, by a check that found the
//     cell clean, up to the timestamp of the entry that the check was for. Anything newer stays (invariant 12 of the
//     design).
//  4. A notification is never dropped. A run that fails, panics or passes its deadline is counted in the notify entry
//     and tried again after an exponential backoff; after MaxAttempts it is parked with the error. Conflicts of the run's
//     own transaction, and nodes that do not answer, are not counted; conflicts that the function brings back from
//     transactions of its own are its errors like any other. What comes to nothing dozens of times in a row is warned of,
//     and every 64th time counts as a failure after all, unless the run's own transaction found nobody to serve it.
//     Nothing is retried without a pause. A row that is run for hundreds of times within seconds is warned of, too.
//     A run whose change may have been met by a process that died since (Config.Suspect) is counted before it begins, so
//     that a row which ends its processes is parked after MaxAttempts of them; those that were running when a process
//     ended run one at a time, so that no other is parked with it. The death of the process in whose life the change was
//     made is not counted.
//  5. In one process there is at most one run per cell; changes that come meanwhile are collapsed into the next run.
//  6. Everything is bounded: runs at once by Workers and each observer's Concurrency, cells waiting by Queue, each run by
//     its Deadline. A function that ignores its context holds its slot only: the slot is replaced, up to MaxStuck of all
//     and the limit of its observer. When these are used up its observer stops, which its Stats show; every other one
//     keeps at least one slot.
//  7. Only observers registered in this process run here, and none while it is paused (Control): no run starts, what
//     was queued is forgotten, and its memory and advisory locks with it.
//
// The dispatcher is an actor: it never waits. Invocation actors may block, because
// nothing else is ever sent to them.
//
// Package node spawns the dispatcher and connects scanners to it. A crash loses the
// queues and the backoff; the notifications are in the tablets, and the next scan finds
// them. A crash between a run's commit and its clearing costs one check that finds the
// cell clean (strong), or one more run (weak).
package observer
