// Package peer is how one node asks another: requests with correlation ids over a Link,
// which carries batches at most once. Whatever waits for a node is sent to it in one
// batch; what may be under way to one node is bounded. Raft messages go the same way, and
// are dropped rather than waited for.
//
// Invariants:
//  1. A request is answered once, or its caller is told that there was no answer.
//  2. Nothing here waits for the network on a caller's goroutine but Call, and that no longer than its context.
//  3. A batch of another cluster, for another node, or of an incarnation older than one already heard of, is dropped.
//  4. An error wraps txn.ErrNotSent exactly if no other node can have seen the request. All others leave the outcome unknown.
//  5. What waits, what is unanswered and what is being handled for others is bounded, per node, in messages and bytes.
//
// A node's outbox is an actor that coalesces its mailbox: while the link is busy with a
// batch or two, what comes in waits, and goes in the next one. Raft messages go first:
// they are small, and elections wait for them.
//
// A crash loses what is under way: callers learn it by the connection's end, by gossip
// (Down), by the next incarnation's first message, or at last by their deadlines. Called
// by: node, cluster/admin, and cluster/route through its interface Caller.
package peer
