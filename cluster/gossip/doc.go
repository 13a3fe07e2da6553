// Package gossip is cluster.Members over hashicorp/memberlist: who is in the cluster,
// alive or seen to die, and what each node says of itself (design section 9). It is for
// discovery, liveness hints and small load figures; never for leases, votes or the
// membership of Raft groups.
//
// Invariants:
//  1. Dead reports an incarnation only when it has been seen to die, to leave or to be followed by a later one, and takes it
//     back when the incarnation shows up again (a process that was paused). Silence alone is not death: a node that was
//     never heard of is not known dead.
//  2. A member of another cluster, or an incarnation older than one that is known, never gets into the table, whoever tells
//     of it. Both sides say so in their logs.
//  3. memberlist's callbacks run under its lock: they only copy into this package's table, under a lock that is never held
//     while memberlist is called. Watchers are called from a goroutine of their own.
//  4. What a node says of itself fits into memberlist's 512 bytes, whatever the figures: Open refuses addresses that would not.
//  5. Everything is bounded: members, dead incarnations, events that wait, lines in the log, connections from outside.
//
// To memberlist each incarnation is a member of its own, named by node and incarnation.
// Under one name for all of them a restart at the same address would produce no event,
// and one at another address a conflict that lasts until the old process is given up. As
// it is, the first word of a later incarnation ends the earlier ones at once; memberlist
// finds out about the old name by itself.
//
// Encryption is memberlist's (AES-256-GCM), with a keyring that is read again while the
// node runs: the first key in gossip.keys encrypts, all of them decrypt.
//
// A crash loses nothing: the table is made anew from whoever answers. Called by: node.
package gossip
