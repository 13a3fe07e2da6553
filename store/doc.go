// Package store is one node's storage: the Raft logs and the state of all its tablets, in Badger in managed mode (design
// section 3; the paper's Bigtable, §2.1, and the columns of its Figure 5).
//
// # Who calls it
//
// The log actor is the one writer: it commits the Raft appends and the effects of all tablets, whatever waits at once, and
// one sync serves all of it. Tablets read their state through Snaps, from any number of goroutines, and their own Log from
// their own goroutine.
//
// # Invariants
//
//  1. A Batch is visible as a whole or not at all, and survives as a whole or not at all, also kill -9 and power loss:
//     its entries are in one Badger Txn, with one version, or in several under a marker, and then the next Open undoes them
//     unless the last is there (docs/adr/0015). WriteBatch, which splits silently, and mixed versions, which drop the commit
//     markers, are never used.
//  2. Commit returns after the sync unless all its batches are lazy; after CommitUnsynced, Sync does. What
//     they acknowledged is never lost (§2.2 relies on it for every lock and write record). What survives is a prefix of all
//     batches ever committed, lazy ones included, so what is visible when a batch is made is there whenever that batch is
//     (docs/adr/0002). What is synced are journals, copies of Badger's log files (docs/adr/0021).
//  3. A Snap reads at the highest contiguous sequence number whose commit has returned: never a part of a batch, and, lazy
//     and unsynced batches apart, nothing that could still be lost. Only appends to Raft logs go unsynced (docs/adr/0017).
//  4. What a Snap can see stays: Badger may discard only versions that were superseded below every open Snap's number.
//  5. After a failed write or sync nothing is written any more (ErrFailed): a later commit would make visible what is
//     left of the failed one.
//  6. A Raft log is contiguous and never commits more than it holds, at every moment on disk. Entries and HardState go in
//     one Batch with the deletion of what they overwrite, or after it.
//  7. Keys order like (row, class, column) of any bytes, and round-trip.
//  8. The directory belongs to one process at a time, says its disk format, and is refused with a typed error otherwise.
//  9. Badger's value log stays empty: long values are cut into chunks. Nobody but the Writer writes to a database.
//  10. The directory is bounded: twice what lives, and some memtables (docs/adr/0005). What is deleted leaves no key behind
//     once Reclaim has found the store quiet, or Compact was called.
//  11. What belongs to a tablet's rows is in rangedGroups, nowhere else: a Cursor gives all of it, or deletes it (rows.go).
//     What a snapshot has brought is staged under keys of its own and takes part in nothing until it is in force
//     (replica.go).
//  12. What a compaction has copied, and what a snapshot has sent, was compared with its checksums (tables.go, hold.go,
//     scrub.go). The first damage ends the store, for good: ErrDamaged (damage.go, docs/adr/0029).
//
// # What a crash does
//
// Open repairs all there is: log files get back what their journals hold; Badger replays its logs and drops a Txn whose end is missing; a large Batch of which not all Txns
// are there is undone (large.go); empty log files that a kill can leave behind (Badger issue 2207) are removed; an Open that
// never finished making a new store is begun anew; memtables that were larger than this Open's are written to tables first (lower.go). The sequence goes on from Badger's highest version. Lazy batches since the last sync may be gone: their tablet applies the
// entries of its log again.
//
// # Limits
//
// A batch is bounded by Store.MaxBatchBytes (10 MiB of keys, values and overhead) and MaxBatchLen, whatever the memtable: of
// which 15 % is what goes in one Txn, and so at the least cost. Badger writes through memory maps, where a full disk is a
// SIGBUS: Store.WriteBlocked says when to stop taking writes, Store.Exhausted when to take nothing on at all, and Commit
// itself refuses before the last reserve is gone. It has written nothing then, and takes the same batches when there is room.
package store
