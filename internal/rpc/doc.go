// Package rpc is the public gRPC protocol (api/percolator/v1): a server that puts any
// txn.Transport on a listener, and a client that is one. percolator.Dial uses the client,
// package node the server. Remote clients speak nothing else.
//
// Invariants:
//  1. An operation is put on a stream at most once. Its reply is matched by id; a stream that breaks makes every
//     operation that was put on it "reply lost", and every other "not sent" (design section 4, invariant 8).
//  2. Everything is bounded: unanswered operations per client and per stream, bytes per message, time to connect.
//     A message is as large as the largest operation (design section 2) and what protobuf adds. The answers to all clients
//     together take no more memory than ServerConfig.AnswerMemory: room for an answer is taken before its operation is done,
//     and a read that turns out to need more is refused where it is evaluated, and done again when there is as much. It covers
//     what gRPC has and has not written; a message's answers are let go when it is encoded, four large ones at once. Beyond it
//     there are answers to mutations that met more locks than there was room for, until they are cut. A stream whose client
//     reads nothing while others wait is ended.
//     What clients send is bounded likewise: messages that are not whole, or not taken (arrivals), and operations that are
//     taken and not done, by what they take once decoded (incoming, ServerConfig.RequestMemory). Beyond it streams and
//     connections are not read, so that flow control holds their clients back; connections that do not go on with a message
//     while others wait are closed. Whole messages of at most 16 KiB are bounded by the windows of their streams alone.
//     Single calls are bounded in number and by what their requests, and then their answers take (calls); one too many is
//     refused, to be made again. One that asks for timestamps gets maxTimestamps
//     at most. While much is held, package heap bounds the garbage beside it.
//  3. Nothing that arrives on the port ends the process: handlers recover, sizes are limited, and a remote client can
//     change users' columns of user tables only, in transactions: no acknowledgment, no raw cell, nothing of the nodes' own.
//  4. Operations of many callers share messages by natural batching: whatever waits when the sender comes round.
//  5. A client that vanishes without closing its connection (stopped, or its network gone) is noticed within 15 s: after 10 s
//     of silence it is asked for a sign of life, and 5 s later its connection is closed. Its operations under way are given
//     up and its place is free. What it holds elsewhere ends by itself: locks at their expiry, unless they are renewed, and
//     the history that it keeps at the end of its lease.
//
// A crash of the server is a broken stream to its clients; a crash of a client ends its
// stream's operations early, which is a lost reply to nobody.
package rpc
