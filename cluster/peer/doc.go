// Package peer is how one node asks another: requests with correlation ids over a Link, which carries batches at most once.
// Whatever waits for a node is sent to it in one batch; what may be under way to one node is bounded. Raft messages go the
// same way, and are dropped rather than waited for.
//
// Invariants:
//  1. A request is answered once, or its caller is told that there was no answer.
//  2. Nothing here waits for the network on a caller's goroutine but Call, and that no longer than its context.
//  3. A batch of another cluster, or for another node, is dropped.
//
// A crash loses what is under way: callers learn it by their deadlines. Called by: node, cluster.
package peer
