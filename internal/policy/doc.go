// Package policy describes the settings that hold for a whole cluster: how many replicas
// a tablet has, how long history is kept, when tablets are split. They are kept in meta
// (meta.Policy), set from the flags of the node that founds the cluster, and changed by
// `percolator cluster set`. A node's own flags are compared with them and never acted on.
//
// Invariants:
//  1. Every job of meta's leader can run with a policy that Check accepts.
//  2. A setting has one name, in `cluster set` and as a flag of `start`.
//
// It has no state. Called by: cluster/meta (what is stored), cluster/admin (what may be set),
// node/leaderjobs (what the jobs run by), node and cluster (the comparison with the node's own
// configuration), internal/cli (names and texts), backup (what a restore changes).
package policy
