// Package gateway serves the API for programs in any language (api/gateway/v1): gRPC, gRPC-Web, and Connect
// with JSON over HTTP/1.1 and HTTP/2, on one port. It is off unless a node's configuration gives it an
// address (docs/adr/0071).
//
// Invariants:
//  1. A call acts as its caller. Each identity has a txn.Client over rpc.Server.Local, which performs the
//     checks of the client port by the same code: roles, grants, rates, memory, audit. Nothing here grants
//     more than a connection to the client port would, except for the gateway's own table, which requests
//     cannot name.
//  2. A transaction with an idempotency key reads and writes the outcome of its key. Of two with one key at
//     most one commits, and the other one returns its outcome, whatever has died in between.
//  3. A session belongs to one node and to the name in its caller's certificate or token; in plain text, to
//     all clients that know its id. It ends when its lease ends without a call, and its buffered
//     writes with it; nothing of it is stored before its commit.
//  4. Everything is bounded: connections as on the client port, calls of one identity and of all, messages,
//     bytes of requests being read, time to send a request and to read an answer, sessions and their buffers.
//  5. A run of an observer commits only if its worker finishes it while its lease lasts, and then in the transaction
//     that acknowledges its changes (actors/observer). Its session is of the worker's identity.
//  6. A browser's request is answered only if its origin is configured.
//
// Each call runs on its goroutine of net/http; Watch has one more. Clients have goroutines of their
// own, a session a timer, and a worker (Work.Observe) a dispatcher (actors/observer) with its
// goroutines, a session with its node, and a timer. A crash of the process ends sessions, and
// leaves of a commit what that of a client leaves. Called by: node.
package gateway
