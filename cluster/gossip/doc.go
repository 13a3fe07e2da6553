// Package gossip implements cluster.Members over hashicorp/memberlist: the members of the
// cluster, which of them are alive or dead, and the metadata that each publishes (design
// section 9). It serves discovery, liveness hints and small load figures. Leases, votes and
// the membership of Raft groups never depend on it.
//
// Invariants:
//
//  1. Dead reports an incarnation only if memberlist reported that it died or left, or a
//     later one exists. It reports false again if the incarnation reappears (a process that
//     was paused). Silence alone is not death: a node that was never a member is not dead.
//
//  2. The table never contains a member of another cluster or an incarnation older than a
//     known one, no matter which node reports it. A node that refuses a member of another
//     cluster logs it.
//
//  3. memberlist's callbacks run under its lock. They only copy into this package's table,
//     under a mutex that is never held while memberlist is called. Watchers are called on
//     a goroutine of their own.
//
//  4. A node's metadata fits into memberlist's 512 bytes, whatever its figures: Open refuses
//     addresses that would not fit.
//
//  5. Everything is bounded: members, dead incarnations, queued events, log lines, incoming
//     connections.
//
// Each incarnation is a separate memberlist member, named by node and incarnation. If all
// incarnations shared a name, a restart at the same address would produce no event, and a
// restart at another address a conflict that lasts until the old process is declared dead.
// With separate names, the first message of a later incarnation ends the earlier ones at
// once, and memberlist's probes detect that the old name is dead.
//
// memberlist encrypts messages (AES-256-GCM). The keyring is reloaded while the node runs:
// the first key in gossip.keys encrypts, all of them decrypt.
//
// A crash loses the table. The members that answer fill it again, but Dead reports false for a node
// that died before, until a later incarnation of it appears. Called by: node.
package gossip
