// Package workload holds the concurrent workloads that show what transactions promise.
// Each takes a database and returns an error that names the promise it saw broken, so
// that the same code runs against one node, a cluster under faults, a simulated cluster,
// and the deliberately broken builds.
//
// The promises of snapshot isolation (§2.2, §2.3): money is kept (Bank), no update is
// lost (LostUpdate), two readers see two writers in one order (LongFork), a transaction
// reads what it wrote (ReadYourWrites), a snapshot does not change (StableSnapshots), and
// no history of list appends contradicts any of it (ListAppend). Write skew is allowed
// (WriteSkew must be able to see it).
//
// The promises of its timestamps: they increase in real time (Oracle), so that one cell
// is a linearizable register (Register), what was added to a set is in it from then on
// (Set), and commits have the order of their timestamps (Monotonic). Each change is
// observed exactly once (Counting); when a wait for a commit's effects has ended they are
// there (Effects); what was to run later runs, and not before (Timers).
//
// Invariants:
//  1. An operation that was refused for sure is taken to have done nothing. Of any other
//     that failed nothing is known, and both outcomes are allowed.
//  2. Faults are excused, except at the end: what is there is then read until that
//     succeeds, or ctx ends.
//  3. A workload may run again on the same repository, and beside the others.
package workload
