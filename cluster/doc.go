// Package cluster holds what its subpackages share: the members of the cluster, and its
// first tablets:
//
//   - gossip: who is alive; remoting and peer: how nodes talk to each other
//   - join: how a node becomes one of the cluster, and comes back to it
//   - route: where each tablet is reached, and the oracle
//   - meta: the cluster's own tables, in the meta tablet
//   - admin: what operators order and ask
//
// It keeps nothing. Called by: node and all of them.
package cluster
