// Package raftlog is one node's write-ahead log, shared by all its replicas: Raft
// entries, HardStates, truncations, and checkpoints of the state that the entries bring
// about, which package store keeps in Badger (docs/adr/0028).
//
// # Who calls it
//
// The log actor appends: whatever waits in its mailbox makes up one Batch, which one write
// and one fdatasync make durable. Package store adds checkpoints, and the begins and ends
// of replicas. Each replica reads its own part through a Replica, which is its
// raft.Storage, on its own goroutine.
//
// # Invariants
//
//  1. A Batch survives as a whole or not at all, also kill -9 and power loss, and what
//     Append has returned without an error survives.
//  2. Nothing is written behind what is not synced. So every frame that another one
//     follows was synced, and if it cannot be read it is damaged: Open says in which
//     segment and where (*DamageError), and never takes it for the end of the log. Only
//     the very last frame of a log that was not closed may be cut short; that it is
//     damaged cannot be told from that.
//  3. What an earlier use of a segment's file has left behind, and what belongs to
//     another log or place, is none of the log's: the checksums of frames begin with the
//     log's id and the segment's number, and appends go to a new segment after every
//     Open.
//  4. Every segment begins with the state of all replicas, so a segment is needed for
//     nothing but the entries in it that are kept: those behind the truncation, which
//     goes no further than the checkpoint, so that a replay has all it needs. Segments go
//     from the oldest on, once nothing in them is kept.
//  5. After a failed write or sync nothing is written any more (ErrFailed). A full disk
//     is refused before anything is written (ErrDiskFull) and is over when there is room:
//     a segment has its place on the disk before it takes its first entry, and keeps some
//     for what gives room.
//  6. A log is contiguous, never commits more than it holds, votes once a term,
//     overwrites nothing that is committed, and keeps what no checkpoint covers. A Batch
//     that says otherwise is refused (ErrInvalid).
//  7. No damaged byte is returned: entries have checksums of their own, which every read
//     from disk verifies.
//
// # What a crash does
//
// Open reads all segments, makes durable what it has found, ends the last segment there,
// and begins a new one. What was being written is there or not, and was acknowledged to
// nobody. Files that were being made are removed, unless the log turns out to be another.
//
// # Limits
//
// A batch takes MaxBatchBytes at most. Memory: Options.CacheBytes of entries, and 32
// bytes for each entry that is kept. On disk the log takes what is kept, rounded up to
// segments, Options.Spares more, and what lies between entries that are kept: Rewrite
// gives that back.
package raftlog
