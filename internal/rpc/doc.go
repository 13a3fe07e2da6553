// Package rpc is the public gRPC protocol (api/percolator/v1): a server that puts any
// txn.Transport on a listener, and a client that is one. percolator.Dial uses the client,
// package node the server. Remote clients speak nothing else.
//
// Invariants:
//  1. An operation is put on a stream at most once. Its reply is matched by id; a stream that breaks makes every
//     operation that was put on it "reply lost", and every other "not sent" (design section 4, invariant 8).
//  2. A connection takes one of the server's places with its first call, once the caller is authenticated
//     (ADR 0052). Everything is bounded: unanswered operations per client and per stream, bytes per
//     message, calls per connection, connections, time to connect, time to read an answer.
//     A message is as large as the largest operation (design section 2) and what protobuf
//     adds. The operations of all clients with their answers take no more memory, about,
//     than ServerConfig.Memory, and those of one connection an eighth: it is taken before
//     an operation is done, and given back when its answer is written. A stream that wants
//     more is not read. What is not counted there is bounded for each connection, by gRPC:
//     messages that are not whole, or just decoded, and the answers to single calls (ADR
//     0031).
//  3. A handler that panics does not end the process, and a remote client can
//     change users' columns of user tables only, in transactions: no acknowledgment, no raw cell, nothing of the nodes' own.
//     Each call and operation takes a role, which the client's certificate names (access.go, ADR 0035), and
//     grants narrow it for single tables (grants.go), of which nothing is told to others
//     (visibility.go). Who may read a cell but not end an expired lock on it has the node end it
//     (resolveMet). Operators' acts leave a line each in the log (audit.go, ADR 0039). A
//     certificate that is revoked ends its connection (ADR 0047).
//  4. Operations of many callers share messages by natural batching: whatever waits when the sender comes round.
//  5. A client that vanishes without closing its connection (stopped, or its network gone) is noticed within 15 s: after 10 s
//     of silence it is asked for a sign of life, and 5 s later its connection is closed. Its operations under way are given
//     up and its place is free. What it holds elsewhere ends by itself: locks at their expiry, unless they are renewed, and
//     the history that it keeps at the end of its lease.
//
// A crash of the server is a broken stream to its clients; a crash of a client ends its
// stream's operations early, which is a lost reply to nobody.
package rpc
