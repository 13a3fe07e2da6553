// Package remoting is the peer.Link between processes. It runs protoactor-go's remote on an
// actor system of its own, over mutual TLS between holders of node certificates.
//
// The library trusts its peers: an unknown RPC, an unknown message type or an index out of
// range ends its process, and anybody can stop an actor by name. So everything that others
// send passes the guard first (guard.go). After a failed connection the library sleeps for
// two seconds, and it silently drops what waits for a connection that has ended. The
// streams and endpoints of this package (stream.go, endpoint.go) prevent both.
//
// Invariants:
//
//  1. Only batches of type PeerBatch for the one receiving actor pass the guard, of bounded
//     size and number.
//
//  2. With certificates, both sides of every connection hold a certificate of the authority
//     with the role of a node.
//
//  3. A batch that was handed over is reported exactly once: as on its way, or as surely
//     not sent.
//
//  4. A connection that has ended, has failed or leads to a former address of a node does
//     not delay its successor: each has its own name in the library.
//
//  5. Other nodes can reach no other actor: the node's own actors are in another system.
//
//  6. No stream begins before batches can be received, so that no batch is lost at a start
//     after its sender counts it as on its way.
//
// A certificate does not say which node its holder is, so one node can pretend to be
// another (docs/adr/0014). A crash ends the connections. Other nodes learn of it at once,
// or by keepalive, or by gossip. Called by: node.
package remoting
