// Package cluster holds what its subpackages and those of package node share: the members of the
// cluster, its first tablets, the other nodes and how to ask them (PeerNodes), and the cluster's
// policy as a node has read it (PolicyView). The subpackages are:
//
//   - gossip: which nodes are alive
//   - liveness: the promises of support between nodes, on which leases rest
//   - remoting and peer: messages between nodes
//   - join: how a node founds or joins a cluster, and comes back to it
//   - route: the way to each tablet and to the oracle
//   - meta: the cluster's own records, in the meta tablet
//   - admin: the operators' service
//
// Nothing in this package itself outlives the process: after a crash the members are learnt again
// from gossip, and the policy from meta. Called by: node, its subpackages, and those of this
// package.
package cluster
