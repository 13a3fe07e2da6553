// Package store is one node's storage: the state of all its tablets in Badger in managed
// mode (design section 3; the paper's Bigtable, §2.1, and the columns of its Figure 5),
// and their Raft logs in one write-ahead log beside it (package raftlog; docs/adr/0028).
//
// # Who calls it
//
// The log actor appends to the logs of all tablets (Store.Append), everything that waits at
// once, with one sync. The state actor commits the effects of their entries
// (Writer.Commit), without a sync. Tablets read their state through Snaps, on any number of
// goroutines, and their own log on their own goroutine. The store has background goroutines
// of its own: one looks at the free space and makes checkpoints, one reclaims space, and
// one verifies tables.
//
// # Invariants
//
//  1. What Append has returned without an error survives kill -9 and power loss. Before
//     that, nothing of an entry is committed here.
//  2. A Batch is visible as a whole or not at all, whether its entries are in one Badger
//     Txn or in several: Snaps see none of their numbers before the last has returned.
//     Badger's WriteBatch, which splits silently, is never used.
//  3. What a Commit has written survives from the next checkpoint on. Before that a crash
//     may keep any part of it, which does no harm, because all of it comes from entries in
//     the log: a tablet applies again what follows its checkpoint, and effects are blind
//     puts and deletes.
//  4. A checkpoint is recorded when everything that it covers is durable, and a log is
//     truncated no further than its checkpoint.
//  5. What entries are applied to that is not blind is never taken from what a crash has
//     left. Each checkpoint contains the tablet's figures, which are its state and its
//     Applied record as of the checkpoint's index, and Open writes them back into Badger
//     before anything is read. It does the same with records, tombstones and markers,
//     which are notes in the log as well.
//  6. Records, tombstones, markers, and the begins and ends of replicas are durable when
//     their Commit returns. So is, except for plain records, everything that was committed
//     before (a barrier). Hence no two replicas' entries after their checkpoints write the
//     same rows.
//  7. A Snap reads at the highest sequence number up to which all commits have returned, so
//     it never sees a part of a batch. What it can see stays: Badger may discard only
//     versions that were superseded below the number of every open Snap.
//  8. After a failed write or sync nothing is written any more (ErrFailed): a later commit
//     would make visible what is left of the failed one, and a later sync would not report
//     what the kernel has dropped.
//  9. Keys sort like (row, class, column) for any bytes, and decode to what was encoded.
//  10. The directories belong to one process at a time, and name their disk format and the
//     log that belongs to the state. Any others are refused with a typed error.
//  11. Badger's value log stays empty: long values are cut into chunks. Only the Writer
//     writes to the database.
//  12. The size of the state's directory is bounded by twice the live data plus some
//     memtables (docs/adr/0005). Deleted data leaves no keys behind once Reclaim has found
//     the store quiet, or after Compact, except for chunks of long values that a crash has
//     separated from their heads (chunk.go).
//  13. Only rangedGroups says which groups belong to a tablet's rows: a Cursor returns or
//     deletes all of them (rows.go). What a snapshot has brought is staged under separate
//     keys and takes no part in anything until it is installed (replica.go).
//  14. What a compaction has copied, and what a snapshot has sent, was compared with its
//     checksums (tables.go, hold.go, scrub.go). The first damage ends the store for good:
//     ErrDamaged (damage.go, docs/adr/0029).
//  15. A lock that stands is in Badger or in the Writer's memory. What a checkpoint covers, and
//     what a SnapWithLocks shows, is in Badger; another Snap refuses to read locks (locks.go,
//     docs/adr/0049).
//  16. A compaction creates a table only while enough files can be created, and what it has
//     written is compared with what it has read (gate.go, lost.go, docs/adr/0056).
//
// # What a crash does
//
// Open repairs everything. It reads the log and finds its end. Badger replays its own log
// files and drops a Txn whose end is missing. Empty log files that a kill can leave behind
// (Badger issue 2207) are removed, and so are log files of memtables that are tables already
// (oldlogs.go). Memtables larger than the configured size are first
// written to tables (lower.go). Figures and records are put back (checkpoint.go). A store
// whose creation was not finished is created again. The sequence continues from Badger's
// highest version, so that what is applied again is above everything that has survived.
// The caller then completes what markers describe, and opens each tablet with its Applied
// record: Raft hands out the entries after it once more. Close makes a checkpoint, after
// which nothing has to be applied again.
//
// # Reading order
//
// From opening to the keys: each file calls mostly those behind it.
//
// store.go, oldlogs.go, lower.go, checkpoint.go, version.go, dir.go, options.go,
// reclaim.go, stats.go, writer.go, size.go, powerloss.go, replica.go, applied.go,
// collect.go, rows.go, row.go, scan.go, snap.go, values.go, hold.go, scrub.go, damage.go,
// locks.go, hot.go, lost.go, gate.go, tables.go, chunk.go, keys.go, batch.go, sequence.go,
// space.go, log.go, files.go, logger.go, errors.go, memory.go.
//
// # Limits
//
// A batch holds at most MaxBatchBytes of keys, values and overhead, and MaxBatchLen
// entries. A start applies what was appended within half a minute, or 64 MB, again. Notes
// are held in memory and in the first frame of every segment of the log, so they are for
// small things. Badger writes through memory maps, where a full disk is a SIGBUS:
// Store.WriteBlocked says when to refuse new writes, Store.Exhausted when to accept
// nothing at all, and Commit itself refuses before the last reserve is used. It accepts
// the same batches when there is room. The same holds for what its files take: inodes, file
// descriptors and memory maps.
package store
