// Package worker runs observers in a process that holds no data (docs/adr/0073). A worker connects
// to the nodes of a cluster as a client, and runs what its program registers; the nodes need not
// know the program, and are not restarted for another version of it.
//
//	err := worker.Run(ctx, []string{"db1:7800", "db2:7800"}, register, worker.Config{})
//
// The guarantees are those of observers inside a node: at most one transaction of a strong observer
// commits for each change, since the acknowledgment is part of that transaction.
//
// What runs is package internal/worker, which states the invariants.
//
// Called by: programs of users. A crash loses the queue; nodes notice the crash as soon as the
// connection breaks, or within 1 s, and hand the cells to others.
package worker
