// Package remoting is the peer.Link between processes: a gRPC stream from each node to each
// other, over mutual TLS between holders of node certificates.
//
// Frames are those of protoactor's remote, which earlier builds use, so that nodes of both
// understand each other (docs/adr/0064). All that others send is checked before it is decoded
// (frame.go): a few encoded bytes may take hundreds in memory.
//
// Invariants:
//
//  1. Only a hello and frames with one batch each, of bounded size and number of messages,
//     are decoded. Any other frame ends its stream.
//
//  2. With certificates, both sides of every connection hold a certificate of the authority
//     with the role of a node.
//
//  3. A batch that Send has accepted is reported exactly once: as on its way, or as surely
//     not sent. No batch is sent twice.
//
//  4. A node has at most one connection to each other node, and the next one sends nothing before
//     the end of the last one was reported. After a connection has ended or an attempt has failed,
//     the next attempt follows a pause of at most a second; a new address is tried at once.
//
//  5. What waits for a node is bounded: a node that reads nothing delays no other.
//
//  6. No stream from another node begins before Receive has been called, so that a starting node
//     loses no batch that its sender counts as on its way.
//
// A certificate does not say which node its holder is, so one node can pretend to be
// another (docs/adr/0014). A crash ends the connections. Other nodes learn of it at once,
// or by keepalive, or by gossip. Called by: node.
package remoting
