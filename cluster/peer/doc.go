// Package peer sends requests and Raft messages from one node to another. It pairs each
// answer with its request by a number, and puts what waits for a node into batches, which
// a Link carries at most once. What is in flight to one node is bounded. Raft messages
// that exceed the bound are dropped and never waited for.
//
// Invariants:
//
//  1. A request is answered once, or its caller is told that there was no answer.
//
//  2. Only Call waits for the network on its caller's goroutine, and no longer than its
//     context.
//
//  3. A batch of another cluster, for another node, or of an incarnation older than one
//     already heard of, is dropped.
//
//  4. An error wraps txn.ErrNotSent exactly if no other node can have seen the request.
//     Any other error leaves the outcome unknown.
//
//  5. What waits, what is unanswered and what is being handled for others is bounded for
//     each node, in messages and bytes.
//
// The outbox of a node is an actor that drains its mailbox into batches. While the link
// has two batches in hand, new messages wait for the next one. Raft messages go first:
// they are small, and elections wait for them.
//
// A crash loses what is in flight. Callers learn of it when the connection ends, from
// gossip (Down), from the first message of the next incarnation, or at their deadlines.
// Called by: node, cluster/admin, and cluster/route through its interface Caller.
package peer
