// Package node wires one node: the store, the actors over it, the client, the listeners.
// Open opens one in a program's own process, and Run also serves and closes it; app.Main is
// the whole command line with the program's observers linked in (the paper's section 2.4).
//
// Order of starting: store, HTTP, identity and joining, writers, gossip and the way to
// other nodes, replicas, oracle, lockd, client; then the node waits until meta answers,
// wherever it is led; observers, which are registered with the tablets that are there
// within some seconds and with the others later (registration.go), scanners, clients.
// Close is the same backwards, after leaderships have been handed over and what is under
// way has ended. A crash anywhere is a stop without the drain: nothing acknowledged is
// lost, and the next Open repairs what was half done in meta.
//
// Invariants of several nodes:
//  1. Every node has the same actors, serves any client and runs any observer that it
//     links, also a node without replicas.
//  2. Jobs (placement, collection of history, splits, back-fills) run while the node leads
//     meta. Two nodes may run them at once for a moment, so all of them change meta by
//     conditional writes.
//  3. Advisory locks of an incarnation are released when gossip knows that it has ended.
//  4. A change of observers is in force on every live node before the call returns, and on
//     the others before they run anything, or when they see the rest again.
package node
