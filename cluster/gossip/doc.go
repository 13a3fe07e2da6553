// Package gossip implements cluster.Members over hashicorp/memberlist: which nodes are in
// the cluster, which are alive or were seen to die, and what each says of itself (design
// section 9). It serves discovery, hints of liveness and small load figures. Leases, votes
// and the membership of Raft groups never depend on it.
//
// Invariants:
//
//  1. Dead reports an incarnation only if it was seen to die or to leave, or a later one
//     was seen, and takes that back when the incarnation is seen again (a process that was
//     paused). Silence alone is not death: a node that was never heard of is not known
//     dead.
//
//  2. A member of another cluster, or an incarnation older than one that is known, never
//     gets into the table, whoever reports it. Both sides log it.
//
//  3. memberlist's callbacks run under its lock. They only copy into this package's table,
//     under a mutex that is never held while memberlist is called. Watchers are called on
//     a goroutine of their own.
//
//  4. What a node says of itself fits into memberlist's 512 bytes, whatever the figures:
//     Open refuses addresses that would not fit.
//
//  5. Everything is bounded: members, dead incarnations, events that wait, lines in the
//     log, connections from outside.
//
// Each incarnation is a memberlist member of its own, named by node and incarnation. If
// all incarnations had one name, a restart at the same address would produce no event, and
// a restart at another address a conflict that lasts until the old process is given up.
// With a name for each, the first message of a later incarnation ends the earlier ones at
// once, and memberlist notices by itself that the old name is dead.
//
// Messages are encrypted by memberlist (AES-256-GCM). The keyring is read again while the
// node runs: the first key in gossip.keys encrypts, all of them decrypt.
//
// A crash loses nothing: the table is filled again by whoever answers. Called by: node.
package gossip
