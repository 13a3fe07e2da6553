// Package remoting is the peer.Link between processes: protoactor-go's remote, on an
// actor system of its own, over mutual TLS between holders of node certificates.
//
// The library trusts whoever reaches it: an RPC that it lacks, an unknown message type or
// an index out of range end its process, and anybody can stop an actor by name. What
// reaches it here has passed the guard (guard.go) first. On the sending side it sleeps
// for two seconds after a failed connection, and drops without a word what waits for one
// that has ended; the streams and endpoints here (stream.go, endpoint.go) see to it that
// neither happens.
//
// Invariants:
//  1. Nothing gets through but batches of type PeerBatch for the one actor that takes them, of bounded size and number.
//  2. With certificates, both sides of every connection hold one of the authority with the role of a node.
//  3. A batch that was handed over is reported as on its way, or as surely not sent; never neither, never both.
//  4. A connection that has ended, failed, or leads to an address that the node has left, delays nothing on its successor:
//     each has a name of its own in the library.
//  5. No other actor can be reached: the node's own are in another system.
//  6. No stream begins before batches can be taken: one that another node counts as on its way is not lost to a start.
//
// What a certificate does not say is which node its holder is: one node can pretend to be
// another (docs/adr/0014). Called by: node. A crash ends the connections; the other side
// hears of it at once, or by keepalive, or by gossip.
package remoting
