// Package rpc implements the public gRPC protocol (api/percolator/v1): a server that serves
// any txn.Transport on a listener, and a client that implements txn.Transport. percolator.Dial
// uses the client, package node the server. Remote clients use no other protocol.
//
// Invariants:
//  1. An operation is sent on a stream at most once. Its reply is matched by id. When a stream
//     breaks, every unanswered operation sent on it fails as "reply lost", unless the server has
//     refused the connection. Those still queued are sent on the next stream, or fail as "not
//     sent" if none can be opened (design section 4, "Unknown is unknown").
//  2. A connection counts against the server's limit from its first call, after the caller is
//     authenticated (ADR 0052). Everything is bounded: unanswered operations per client and
//     per stream, bytes per message, calls per connection, connections, time to connect, time
//     to read an answer. A message is at most as large as the largest operation (design
//     section 2) with its protobuf overhead. The operations and answers of all clients use
//     about ServerConfig.Memory at most, and those of one connection an eighth: memory is
//     reserved before an operation runs and released when its answer is written. Beyond that
//     the server stops reading the stream. gRPC bounds per connection what is not counted
//     there: partial and just decoded messages, and the answers to unary calls (ADR 0031).
//  3. A handler that panics does not end the process, and a remote client can change users' columns
//     of user tables only, in transactions: no acknowledgment unless it is a worker, no raw cell,
//     nothing of the nodes' own. Each call and operation requires a role, which the client's
//     certificate names (access.go, ADR 0035). Grants restrict roles to tables (grants.go), which
//     are hidden from clients without a grant (visibility.go). If a client may read a cell but not
//     end an expired lock on it, the node ends the lock (endMet). Each operator's act is logged
//     (audit.go, ADR 0039). Revoking a certificate ends its connections (ADR 0047).
//  4. Operations of many callers share messages by natural batching: the sender sends all that
//     is queued at once.
//  5. A client sends a tablet's operations to its leader's node over a direct connection, if
//     there is one to a node of its cluster, and to its address in use otherwise (leaders.go,
//     ADR 0059). Nothing waits for a direct connection.
//  6. A client that disappears without closing its connection (stopped, or partitioned) is
//     detected within 15 s: the server pings it after 10 s of silence, and closes the
//     connection 5 s later. That cancels its operations and frees its place. Its other
//     resources expire: locks at their expiry unless renewed, and held history at the end of
//     the lease.
//
// To clients, a crash of the server is a broken stream. A crash of a client cancels its
// stream's operations; no reply is lost, since no caller is left.
package rpc
