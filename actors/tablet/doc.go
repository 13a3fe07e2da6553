// Package tablet holds the actors that own a tablet's replicas (the paper's section 2.1:
// Bigtable's tablet server). What they write goes through the two actors of package
// writers.
//
// A Tablet is the only one to touch its group.Group, which is the Raft of the replica as
// a pure type (package group). Operations reach the tablet through its Port;
// what was in the mailbox ahead of the flush marker is one batch: its reads share one
// ReadIndex, its mutations become one Raft entry that holds their effects. Entries go to
// the node's write-ahead log through the log actor, which drains what all tablets have
// sent it into one frame with one sync. What is committed goes to the store's state
// through the state actor, without a sync and while the next entries are synced.
//
// After a crash a replica begins where the last checkpoint of the store is, and Raft
// hands it the entries behind that once more (docs/adr/0028). The rows that the store
// shows may be ahead of it, or in part; what entries do to them does not depend on what
// is there. All else that entries are applied by is as of the checkpoint.
//
// Invariants (design section 5):
//
//  1. A read is answered only by the leader, after an entry of its own term is applied,
//     from state that includes all up to the ReadIndex: the lock view is captured first,
//     then the Badger Txn is opened, and its epoch and bound are checked inside it. A
//     first read asks for its timestamp before all that.
//
//  2. A mutation is evaluated and proposed in one actor turn, against applied state plus
//     the effects of every proposal in flight. An answer waits until all that its
//     evaluation could have read is applied.
//
//  3. The applied index is written in the Txn of the effects, and that only when the
//     entry is synced in the log. The log is never truncated beyond the checkpoint. The
//     commit index is in the log with the next entry at the latest: a replica that
//     starts with an old configuration must know that there is a newer one before it
//     asks for votes.
//
//  4. A one-phase commit holds its reservation before it asks the oracle (invariant 10
//     of section 4), or has both in one turn, in which no view of the locks is captured;
//     the reservation goes only after its effects are visible.
//
//  5. Every call is answered exactly once: on loss of leadership with "unknown" if it
//     may have been proposed.
//
//  6. What a leader holds of its rows in memory is a memory.Memory, which only the
//     tablet's turns touch. A lock leaves it only after its removal is visible, by
//     its cell and token.
//
//  7. History (invariant 11 of section 4): evaluation honours a bound as soon as it is
//     proposed, the safepoint is never above it, and only entries behind the safepoint's
//     delete what it covers; they are evaluated like any mutation.
//
//  8. A replica leads only after an entry of its own term is visible; whoever leads asks
//     a quorum before each batch of reads, and steps down when the quorum is silent.
//     Followers apply blindly and keep no locks or notifications in memory.
//
//  9. Descriptor, epoch and configuration change in one Txn, by an entry that shares the
//     log with nothing in flight. Before a configuration counts in which others can be
//     elected, the oracle's short cut (SoleVoter) is withdrawn.
//
//  10. A message of another replica is checked before Raft sees it: one that does not fit
//     is dropped.
//
//  11. What Raft has handed out to be written is written, in order, however long the disk
//     is full; until then nothing of it is acknowledged, and nothing else taken on
//     (room.go). A write that is refused for good ends its own replica alone.
//
//  12. A group with nothing to do is not ticked and sends nothing (group/rest.go); a
//     group of one replica never is.
//
//  13. A turn never waits for a read worker: reads wait in the tablet (reads.Queue),
//     within its port's QueueLimit.
//
//  14. What begins or ends a replica (a split, a snapshot in force, a removal) is one
//     frame of the log with a checkpoint of all: no replay writes where another
//     replica's rows are. Until all is visible that was in the log when the replica was
//     opened, it computes no checksum and makes no snapshot: its rows may be ahead of
//     its applied index.
//
//  15. A tablet that is frozen for a merge serves nothing, and nothing but a release
//     changes it; it says so only when that is durable. A replica takes another's rows only
//     where that one is as it was frozen.
//
// A crash loses nothing acknowledged: its entries are synced in the log. The lock table
// is loaded from the store again; reservations vanish with the process, and their
// transactions were never proposed.
//
// Called by: node (spawns, routes, hands over other nodes' messages by Receive, says by
// Ticker which nodes are believed dead), through Port by clients, scanners, the oracle,
// placement.
//
// # Reading order
//
// From the message to the log: each file calls mostly those behind it.
//
// tablet.go, raft.go, apply.go, lead.go, waiting.go, firstread.go, read.go, mutate.go,
// onephase.go, admin.go, bounds.go, checksum.go, exclusive.go, split.go, merge.go,
// replicaschange.go, transfer.go, collect.go, size.go, request.go, propose.go,
// pipeline.go, state.go, offline.go, solevoter.go, room.go, host.go, load.go, tick.go,
// board.go, contended.go, metrics.go, config.go.
package tablet
