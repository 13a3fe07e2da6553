// Package cluster holds what its subpackages share: the members of the cluster and its
// first tablets. The subpackages are:
//
//   - gossip: which nodes are alive
//   - remoting and peer: messages between nodes
//   - join: how a node founds or joins a cluster, and comes back to it
//   - route: the way to each tablet and to the oracle
//   - meta: the cluster's own records, in the meta tablet
//   - admin: the operators' service
//
// It keeps no state. Called by: node and the subpackages.
package cluster
