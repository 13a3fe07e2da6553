// Package replicas makes, fills, replaces and removes the replicas of one node (design
// section 5). The node owns a Set and hands it what other nodes send: Raft messages, the
// first of which makes a replica, and pieces of snapshots, which fill one.
//
// It is a package of its own beside the actor: it stops and starts actors and changes
// their state in the store while they are stopped, so that nothing of it may run on an
// actor's goroutine. Package tablet does not import it; what it needs of the actors is
// the interface Owner, which the node fills in. What snapshots hold, and how a replica's
// state is replaced by one, is package snapshot's.
//
// Invariants:
//  1. A replica's state in the store changes by others than its actor only while the
//     actor is stopped, all its writes are done, and the tablet is busy here.
//  2. No two replicas of this node hold rows in common: what a replica holds, what a
//     marker covers and what a snapshot under way will bring is compared before a replica
//     is made or a snapshot begun. A tablet that waits to be split here keeps its other
//     side away until then.
//  3. A replica id that was removed never comes back, and a lower one never replaces a
//     higher one.
//  4. A replica is destroyed only where a committed change of its group is known to have
//     removed it: it has applied that itself, a higher id is here by the sender's
//     descriptor, or meta's record at a higher epoch does not list it. One whose tablet was
//     merged into another goes as merge.go says.
//  5. A replica whose log lacks what it has acknowledged (stale) is durably known as such
//     until it is destroyed. It gets no snapshot: its group removes it, and has one with
//     another id made.
//
// A crash in the middle of an installation or a removal leaves a marker or a tombstone in
// the store; Start brings to its end what they say.
package replicas
