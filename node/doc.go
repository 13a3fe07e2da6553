// Package node wires one node: the store, the actors over it, the client, the listeners. It is embeddable: Open in a
// program's own process, or Main for the whole command line with the program's observers linked in (the paper's section
// 2.4).
//
// Order of starting: store, identity, log actor, tablets, oracle, lockd, client, catalogue, back-fills, observers and
// scanners, jobs (collection of history, splits), listeners. Close is the same backwards. A crash anywhere is a stop
// without the drain: nothing acknowledged is lost, and the next Open repairs what was half done in meta.
package node
