// Package workload contains concurrent workloads that check the guarantees of transactions.
// Each runs on a database and returns an error that names the violated guarantee, so that the
// same code runs against one node, a cluster under faults, a simulated cluster, and the
// deliberately broken builds.
//
// The guarantees of snapshot isolation (§2.2, §2.3): the sum of accounts is constant (Bank), no
// update is lost (LostUpdate), two readers see two writers in one order (LongFork), a
// transaction reads its own writes (ReadYourWrites), a snapshot does not change
// (StableSnapshots), and no history of list appends contradicts any of it (ListAppend). Write
// skew is allowed (WriteSkew must be able to see it).
//
// The guarantees of its timestamps: they increase in real time (Oracle), so that one cell is a
// linearizable register (Register), an element added to a set stays in it (Set), and commits
// have the order of their timestamps (Monotonic). Each change is observed exactly once
// (Counting); when a wait for a commit's effects returns, the effects are visible (Effects); a
// timer fires, and not before it is due (Timers). The feed of changes, applied to an empty map, is a
// snapshot at each resolved timestamp (ChangeCheck, with Churn to write).
//
// Invariants:
//  1. An operation that was definitely refused counts as not done. The outcome of any other
//     failed operation is unknown, and both outcomes are allowed.
//  2. Faults are excused, except at the end: the final reads are retried until they succeed or
//     ctx ends.
//  3. A workload may run again on the same repository, and concurrently with the others.
package workload
