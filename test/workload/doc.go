// Package workload holds the concurrent workloads that show what transactions promise. Each takes a database and returns
// an error that names the promise it saw broken, so that the same code runs against one node, a cluster under faults,
// and the deliberately broken builds.
//
// The promises of snapshot isolation (§2.2, §2.3): money is kept (Bank), no update is lost (LostUpdate), two readers see
// two writers in one order (LongFork), a transaction reads what it wrote (ReadYourWrites), a snapshot does not change
// (StableSnapshots), and no history of list appends contradicts any of it (ListAppend). Write skew is allowed (WriteSkew must be able to see it).
package workload
