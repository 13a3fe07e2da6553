// Package node assembles a node: store, actors, client and listeners. Open starts one in the
// program's process, Run also serves and closes it; app.Main is the complete command line with the
// program's observers (the paper's section 2.4).
//
// Start order: store, HTTP, identity and joining, writers, gossip and links to other nodes,
// replicas, oracle, lockd, client. The node then waits until meta answers, and starts observers,
// which are registered with available tablets within 10 s and with the others later
// (hosting/registration.go), scanners, and the listener for clients. Close stops in reverse order
// after transferring leaderships and draining. A crash is a stop without the drain: acknowledged
// writes survive, and the next Open completes partial changes of meta.
//
// Invariants:
//  1. Every node has the same actors, serves any client and runs any observer that it links,
//     even without replicas.
//  2. Jobs (placement, collection of history, splits, back-fills) run while the node leads meta.
//     Two nodes may briefly run them at once, so they change meta by conditional writes.
//  3. Advisory locks of an incarnation are released when gossip reports its end.
//  4. A change of observers by an operator is in force on every live node before the operator's
//     call returns without an error, and on the others before they run anything or when they
//     reconnect.
//
// # Reading order
//
// From opening a node to its parts: most calls go to later files.
//
// run.go, node.go, sources.go, serve.go, state.go, leave.go, changes.go, publish.go, peers.go,
// requestqueue.go, admin.go, transport.go, status.go, recovery.go, liveness.go, join.go,
// policy.go, certwatch.go, tablets.go, stamps.go, failures.go, elections.go, reports.go,
// localoracle.go, metahealth.go, tracing.go, parts.go, background.go, phase.go.
package node
