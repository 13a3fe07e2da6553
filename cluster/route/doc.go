// Package route is how operations find their tablets, and requests for timestamps the
// oracle. Router is the node's tablet map, as of some time ago; Carrier carries an operation
// to whoever leads its tablet, in this process or another; Oracles ask the oracle beside
// meta's leader. Transport is all of it for the node's own client.
//
// Invariants:
//
//  1. The tablet map follows the tablets: what a tablet says of itself wins by epoch. Who leads is a hint; only the word of
//     this node's replica that it leads is more, and no hint takes it back.
//
//  2. A mutation whose answer was lost is not sent again by the Carrier, which finds whoever leads a tablet.
//
//  3. A timestamp is never older than the question that it answers: late answers are dropped.
//
// All of it is in memory: after a crash the map is read from meta. Called by: node,
// cluster/meta, cluster/admin.
package route
