// Package hosting runs the observers that this node's program links (the paper's section
// 2.4). It enters them in the catalogue (registration), runs a dispatcher and scanners for
// them, follows the catalogue when operators change it, and adds up what all nodes do for
// them.
//
// Invariants:
//  1. Nothing runs before the newest catalogue was applied: a pause outlives the process.
//  2. One goroutine at a time applies the catalogue, and each reads it in its turn, so that an
//     older version is never applied last.
//  3. No scanner starts after Stop has returned, unless its context ended while the catalogue was
//     being applied.
//
// Called by: package node, which opens and closes a Host, and on goroutines of operators'
// requests, of other nodes' requests and of scrapes. A crash loses the queues of the
// dispatcher and the scanners: a change without an acknowledgment is found again, here or on
// another node.
//
// # Reading order
//
// From the start of the host to its parts: most calls go to later files.
//
// runner.go, host.go, outside.go, sum.go, relink.go, workers.go, serve.go, session.go,
// registration.go, locker.go.
package hosting
