// Package replicas creates, fills, replaces and removes the replicas of one node (design section
// 5). The node owns a Set and passes it what other nodes send: Raft messages, the first of which
// creates a replica, and pieces of snapshots, which fill one.
//
// It is separate from the actor's package: it stops and starts actors and changes their state in
// the store while they are stopped, so none of it may run on an actor's goroutine. Package tablet
// does not import it; it reaches the actors through the interface Owner, which the node
// implements. Package snapshot defines the contents of snapshots, and replaces a replica's state
// by one.
//
// Invariants:
//  1. A replica's state in the store is changed by anything but its actor only while the actor is
//     stopped, all its writes are done, and the tablet is busy here.
//  2. No two replicas of this node hold rows in common: before a replica is created or a snapshot
//     begun, its range is compared with those of replicas, markers and snapshots under way. A
//     tablet that has yet to be split here excludes its other side until then.
//  3. A replica id that was removed is never created again, and a lower one never replaces a
//     higher one.
//  4. A replica is destroyed only if a committed change of its group is known to have removed it:
//     it has applied that itself, the sender's descriptor lists a replica with a higher id on this
//     node, or meta's record at a higher epoch does not list it. merge.go has the rule for a
//     replica whose tablet was merged into another.
//  5. A replica whose log lacks what it has acknowledged (stale) is durably marked until it is
//     destroyed. It gets no snapshot: its group removes it, and has one with another id created.
//
// A crash during an installation or a removal leaves a marker or a tombstone in the store; Start
// completes both.
package replicas
