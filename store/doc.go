// Package store is one node's storage: the state of all its tablets in Badger in managed
// mode (design section 3; the paper's Bigtable, §2.1, and the columns of its Figure 5),
// and their Raft logs in one write-ahead log beside it (package raftlog; docs/adr/0028).
//
// # Who calls it
//
// The log actor appends to the logs of all tablets (Store.Append), whatever waits at
// once, and one sync serves all of it. The state actor commits what their entries do
// (Writer.Commit), with no sync. Tablets read their state through Snaps, from any number
// of goroutines, and their own log from their own goroutine. Two goroutines of the
// store's look at the free space and make checkpoints, and give space back.
//
// # Invariants
//
//  1. What Append has returned without an error survives kill -9 and power loss. Before
//     that, nothing of an entry is committed here.
//  2. A Batch is visible as a whole or not at all: its entries are in one Badger Txn,
//     with one version, or in several, whose numbers show when all have returned.
//     WriteBatch, which splits silently, and mixed versions, which drop the commit
//     markers, are never used.
//  3. What a Commit has written survives from the next checkpoint on. Before that a crash
//     leaves any part of it. It does no harm, because it comes from an entry that is in
//     the log: a tablet applies again what is behind its checkpoint, and effects are
//     blind puts and deletes.
//  4. A checkpoint is recorded when everything is durable that it covers, and a log is
//     truncated no further than its checkpoint.
//  5. What entries are applied to that is not blind is never taken from what a crash has
//     left: each checkpoint holds the tablet's figures, its state and its Applied record,
//     as of its index, and Open writes them back into Badger before anything is read. So
//     it does with records, tombstones and markers, which are notes in the log as well.
//  6. Records, tombstones, markers, and where replicas begin and end, are durable when
//     their Commit returns, and, but for plain records, so is all that was committed
//     before (a barrier). So no two replicas' entries behind their checkpoints write the
//     same rows.
//  7. A Snap reads at the highest contiguous sequence number whose commit has returned:
//     never a part of a batch. What it can see stays: Badger may discard only versions
//     that were superseded below every open Snap's number.
//  8. After a failed write or sync nothing is written any more (ErrFailed): a later
//     commit would make visible what is left of the failed one, and a later sync would
//     say nothing about what the kernel has given up.
//  9. Keys order like (row, class, column) of any bytes, and round-trip.
//  10. The directories belong to one process at a time, say their disk format and which
//     log belongs to the state, and are refused with a typed error otherwise.
//  11. Badger's value log stays empty: long values are cut into chunks. Nobody but the
//     Writer writes to the database.
//  12. The state's directory is bounded: twice what lives, and some memtables
//     (docs/adr/0005). What is deleted leaves no key behind once Reclaim has found the
//     store quiet, or Compact was called, but for chunks of long values that a crash has
//     cut off from their heads (chunk.go).
//  13. What belongs to a tablet's rows is in rangedGroups, nowhere else: a Cursor gives
//     all of it, or deletes it (rows.go). What a snapshot has brought is staged under
//     keys of its own and takes part in nothing until it is in force (replica.go).
//  14. What a compaction has copied, and what a snapshot has sent, was compared with its
//     checksums (tables.go, hold.go, scrub.go). The first damage ends the store, for
//     good: ErrDamaged (damage.go, docs/adr/0029).
//
// # What a crash does
//
// Open repairs all there is: the log is read and its end found; Badger replays its log
// files and drops a Txn whose end is missing; empty log files that a kill can leave
// behind (Badger issue 2207) are removed; memtables that were larger than this Open's are
// written to tables first (lower.go); figures and records are put back (checkpoint.go);
// an Open that never finished making a new store is begun anew. The sequence goes on from
// Badger's highest version, so that what is applied again is above all that has survived.
// The caller then brings to an end what markers say, and opens each tablet with Applied
// as it is here: Raft hands out the entries behind it once more. Close makes a
// checkpoint, and leaves nothing to apply again.
//
// # Limits
//
// A batch is bounded by Store.MaxBatchBytes (10 MiB of keys, values and overhead) and
// MaxBatchLen, whatever the memtable: of which 15 % is what goes in one Txn, and so at
// the least cost. A start applies what was appended in half a minute, or 64 MB, again.
// Notes are in memory, and in the first frame of every segment: they are for small
// things. Badger writes through memory maps, where a full disk is a SIGBUS:
// Store.WriteBlocked says when to stop taking writes, Store.Exhausted when to take
// nothing on at all, and Commit itself refuses before the last reserve is gone. It takes
// the same batches when there is room.
package store
