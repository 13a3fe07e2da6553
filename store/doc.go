// Package store is one node's storage: the state of all its tablets in Badger in managed mode
// (design section 3; the paper's Bigtable, §2.1, and the columns of its Figure 5), and their Raft
// logs in one write-ahead log next to it (package raftlog; docs/adr/0028).
//
// # Callers
//
// The log actor appends to the logs of all tablets (Store.Append), everything pending at once, with
// one sync. The state actor commits the effects of their entries (Writer.Commit), without a sync.
// Tablets read their state through Snaps, on any number of goroutines, and their own log on their
// own goroutine. The store has three background goroutines: one checks the free space and makes
// checkpoints, one reclaims space, and one verifies tables.
//
// # Invariants
//
//  1. What Append has written when it returns nil survives kill -9 and power loss. Before that,
//     no effect of an entry is committed here.
//  2. A Batch is visible as a whole or not at all, even if its entries need several Badger
//     Txns: Snaps see none of their sequence numbers before the last Txn has committed.
//     Badger's WriteBatch, which splits silently, is used only to simulate crashes (powerloss.go).
//  3. Committed data survives from the next checkpoint on. Before that a crash may keep any part of
//     it, which is harmless: a tablet applies the log's entries after its checkpoint again, effects
//     are blind puts and deletes, and the staged entries of an unfinished snapshot are deleted.
//  4. A checkpoint is recorded only when everything that it covers is durable, and a log is
//     truncated no further than its checkpoint.
//  5. What decides how entries are applied never comes from what a crash has left in Badger. Each
//     checkpoint contains the tablet's figures, which are its state and its Applied record as of
//     the checkpoint's index, and Open writes them back into Badger before it returns. It
//     does the same with records, tombstones and markers, which are also notes in the log.
//  6. Records, tombstones, markers, and the begin and end of replicas are durable when their Commit
//     returns. All of these but records make everything committed before durable too (a barrier).
//     Hence no two replicas' entries after their checkpoints write the same rows.
//  7. A Snap reads at the highest sequence number up to which all commits have returned, so
//     it never sees a part of a batch. What it can see stays: Badger may discard only
//     versions that were superseded below the number of every open Snap.
//  8. After a failed write or sync nothing is written any more (ErrFailed): a later commit would
//     make the remains of the failed one visible, and a later sync would not report what the
//     kernel dropped.
//  9. The keys of a table in a group sort like (row, class, column), in N and I like (class,
//     column, row), for any bytes, and decode to what was encoded.
//  10. The directories belong to one process at a time, and record their disk format and
//     which log belongs to the state. Open refuses a directory in use, of another format or of
//     another store with a typed error.
//  11. Badger's value log stays empty: long values are cut into chunks. Only the Writer
//     writes to the database, except to simulate a crash (powerloss.go).
//  12. The size of the state's directory is bounded by twice the live data plus some
//     memtables (docs/adr/0005). Compact, and Reclaim when it compacts, leave no keys of data
//     deleted before, except what Compact names, and chunks of long values that a crash has
//     separated from their heads (chunk.go).
//  13. rangedGroups alone defines which groups belong to a tablet's rows: a Cursor returns or
//     deletes all of them (rows.go). A received snapshot is staged under separate keys, which
//     nothing else uses until it is installed (replica.go).
//  14. Data copied by a compaction, or sent in a snapshot, is compared with its checksums
//     (tables.go, scrub.go; hold.go names the exceptions). The first damage makes the store fail
//     permanently: ErrDamaged (damage.go, docs/adr/0029).
//  15. An existing lock is in Badger or in the Writer's memory. The locks that a checkpoint covers,
//     or that a SnapWithLocks shows, are in Badger; other Snaps refuse to read locks (locks.go,
//     docs/adr/0049).
//  16. A compaction creates a table only while enough files can be created, and some keys of its
//     input are looked up in its output (package space, lost.go, docs/adr/0056).
//
// # What a crash does
//
// Open repairs everything. It reads the log and finds its end. Badger replays its own log
// files and drops a Txn whose end is missing. Open removes empty log files that a kill can
// leave (Badger issue 2207), and log files of memtables that were already flushed to tables
// (oldlogs.go). It first writes memtables larger than the configured size to tables
// (lower.go). It restores figures and records (checkpoint.go). It recreates a store
// whose creation did not finish. The sequence continues from Badger's highest version, so
// that entries applied again are above everything that has survived. The caller then
// completes what markers describe, and opens each tablet with its Applied record: Raft
// emits the entries after it again. Close makes a checkpoint, after which nothing has to be
// applied again, unless a write failed or the disk is full.
//
// # Reading order
//
// From opening to the keys: most calls go to later files.
//
// store.go, oldlogs.go, lower.go, checkpoint.go, version.go, dir.go, options.go,
// reclaim.go, stats.go, writer.go, size.go, powerloss.go, replica.go, applied.go,
// collect.go, rows.go, row.go, scan.go, snap.go, ascent.go, values.go, hold.go, scrub.go, damage.go,
// locks.go, hot.go, lost.go, tables.go, chunk.go, keys.go, batch.go, sequence.go,
// log.go, logger.go, errors.go, memory.go.
//
// # Limits
//
// A batch contains at most MaxBatchBytes of keys, values and overhead, and MaxBatchLen entries. A
// start after a crash applies again what was appended since the last checkpoint: about 30 s or
// 64 MiB at most, unless checkpoints failed. Notes are held in memory and in the first frame of
// every segment of the log, so they must be small. Badger writes through memory maps, where a full
// disk is a SIGBUS: Store.WriteBlocked reports when to refuse new writes, Store.Exhausted when to
// accept nothing at all, and Commit itself refuses before the last reserve is used. It accepts the
// same batches again once there is space. The same applies to other resources of its files: inodes,
// file descriptors and memory maps.
package store
