// Package peer sends requests and Raft messages from one node to another. It matches each
// answer to its request by a number, and collects messages for a node into batches, which a
// Link delivers at most once. The messages in flight to one node are bounded. Raft messages
// beyond the bound are dropped without waiting.
//
// Invariants:
//
//  1. A request gets exactly one outcome: an answer, or an error that none arrived.
//
//  2. Only Call waits for the network on its caller's goroutine, and no longer than its
//     context.
//
//  3. A batch of another cluster, for another node, or of an incarnation older than a known
//     one, is dropped.
//
//  4. An error wraps txn.ErrNotSent only if no other node has seen the request or will see it.
//     Any other error leaves the outcome unknown.
//
//  5. For each node, queued messages, unanswered requests and requests being handled are
//     bounded, in messages and bytes.
//
// The outbox of a node is an actor that drains its mailbox into batches. While the link
// holds two batches, new messages wait for the next one. Raft messages are sent first: they
// are small, and elections depend on them.
//
// A crash loses the messages in flight. Their callers get an error when the connection ends,
// when gossip reports the death (Down), at the first message of the next incarnation, or at
// their deadlines.
// Called by: node, cluster/admin, and cluster/route through its interface Caller.
package peer
