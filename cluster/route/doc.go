// Package route finds the replica for each operation and the oracle for each request for
// timestamps. Router is the node's tablet map. Carrier sends an operation to whichever
// replica leads its tablet, in this process or another. Oracles ask the oracle beside
// meta's leader. Transport is all of them for the node's own client.
//
// Invariants:
//
//  1. Of two descriptors of a tablet the one with the higher epoch is valid. Who leads is a
//     hint, except that this node's own replica knows whether it leads; no hint overrides
//     it.
//
//  2. The Carrier does not send a mutation again after its answer was lost, unless it may be
//     repeated (wire.Repeats).
//
//  3. A timestamp is never older than the request that it answers: late answers are
//     dropped.
//
// All state is in memory: after a crash the map is read from meta. Called by: node,
// cluster/meta, cluster/admin.
package route
