// Package tablet contains the actors that own a tablet's replicas (the paper's section 2.1:
// Bigtable's tablet server). They write through the two actors of package writers.
//
// A Tablet is the sole user of its group.Group, the replica's Raft as a pure type (package
// group). Operations reach the tablet through its Port; those ahead of the flush marker in
// the mailbox are one batch: its reads share one ReadIndex, its mutations become one Raft
// entry that contains their effects, or several if they are large. Entries go to the node's
// write-ahead log through the log actor, which writes everything that all tablets have sent as one
// frame with one sync. Committed entries go to the store's state through the state actor, without a
// sync, while the next entries are synced.
//
// After a crash a replica starts from the store's last checkpoint, and Raft emits the
// entries after it again (docs/adr/0028). The stored rows may be ahead of the checkpoint, or
// partly so; the effects of entries on rows do not depend on what is stored. Everything
// else that applying depends on is as of the checkpoint.
//
// Invariants (design section 5):
//
//  1. A read is answered only by the leader, after an entry of its own term is applied,
//     from state that includes everything up to the ReadIndex: the lock view is captured
//     first, then the Badger Txn is opened, and the epoch and bound are checked inside it.
//     A first read requests its timestamp before all that.
//
//  2. A mutation is evaluated and proposed in one actor turn, against applied state plus
//     the effects of every proposal in flight; one that nobody awaits may be proposed with the
//     next, after Config.MaxDelay at the latest, or once anything waits for it. An answer waits
//     until everything that its evaluation could have read is committed and, if its own entry
//     changes more than rows, until that entry is visible (docs/adr/0063). What a client requests
//     after the answer waits for visibility itself: a read for its ReadIndex, all else until the
//     proposal has left the pipeline.
//
//  3. The applied index is written in the Txn of the effects, and only once the entry is
//     synced in the log. The log is never truncated beyond the checkpoint. The commit index
//     is in the log with the next entry at the latest: a replica that starts with an old
//     configuration must know that a newer one exists before it requests votes.
//
//  4. A one-phase commit holds its reservation before it asks the oracle (design section 4,
//     "Order"), or gets both in one turn, in which no view of the locks is captured; the
//     reservation is released only after its effects are visible.
//
//  5. Every call is answered exactly once: on loss of leadership with "unknown" if it
//     may have been proposed.
//
//  6. A leader's in-memory state of its rows is a memory.Memory, which only the tablet's
//     turns touch. A lock is removed from it only after its removal is visible, by its
//     cell and token, or with its rows in a split, or when the leadership ends.
//
//  7. History (design section 4, "Bounded history"): evaluation honours a bound as soon as it is
//     proposed, the safepoint is never above it, and only entries after the safepoint's
//     delete what it covers; they are evaluated like any mutation.
//
//  8. A replica leads only after an entry of its own term is visible; a leader confirms
//     its leadership by its lease or with a quorum before each batch of reads, and steps down
//     when the quorum is silent. Followers apply blindly and keep no locks or notifications in
//     memory.
//
//  9. Descriptor, epoch and configuration change in one Txn, by an entry that shares the
//     log with nothing in flight. PublishedLeadership, the oracle's shortcut, is withdrawn before a
//     configuration takes effect in which other replicas can be elected.
//
//  10. A message of another replica is checked before Raft sees it, and dropped if it does
//     not match this one.
//
//  11. Everything that Raft emits to be written is written, in order, however long the disk
//     is full; until then none of it is acknowledged, and nothing else is accepted
//     (room.go). A permanently refused write stops only its own replica.
//
//  12. A group with nothing to do is not ticked and sends nothing (group/rest.go); a
//     group of one replica is ticked only while it has no leader.
//
//  13. A turn never waits for a read worker: reads wait in the tablet (reads.Queue),
//     within its port's QueueLimit.
//
//  14. The begin or end of a replica (a split, an installed snapshot, a removal) is one
//     frame of the log with a checkpoint of everything: no replay writes where another
//     replica's rows are. Until everything that was in the log when the replica was opened
//     is visible, it computes no checksum and sends no snapshot: its rows may be ahead of
//     its applied index.
//
//  15. A tablet frozen for a merge serves nothing, and only a release changes it; it
//     reports the freeze only when that is durable. A replica takes another's rows only
//     where the other is as it was when frozen.
//
// A crash loses nothing acknowledged: its entries are synced in the log. The lock table
// is loaded from the store again; reservations vanish with the process: their transactions
// are either in the log or were never proposed.
//
// Callers: node (spawns and routes, delivers other nodes' messages by Receive, reports dead
// nodes to Ticker); clients, scanners, the oracle and placement, through Port.
//
// # Reading order
//
// From the message to the log: most calls go to later files.
//
// tablet.go, raft.go, apply.go, lead.go, waiting.go, firstread.go, read.go, changes.go,
// mutate.go, onephase.go, asyncprewrite.go, admin.go, bounds.go, checksum.go, exclusive.go,
// split.go, merge.go, replicaschange.go, transfer.go, collect.go, size.go, request.go, propose.go,
// pipeline.go, state.go, offline.go, leadership.go, room.go, host.go, load.go, tick.go,
// idlehints.go, contended.go, metrics.go, config.go.
package tablet
