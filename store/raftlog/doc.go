// Package raftlog is one node's write-ahead log, shared by all its replicas: Raft
// entries, HardStates, truncations, and checkpoints of the state that the entries bring
// about, which package store keeps in Badger (docs/adr/0028).
//
// # Who calls it
//
// The log actor appends: everything that waits in its mailbox forms one Batch, which one
// write and one fdatasync make durable. Package store adds checkpoints and the begins and
// ends of replicas. Each replica reads its own part through a Replica, its raft.Storage, on
// its own goroutine.
//
// # Invariants
//
//  1. A Batch survives kill -9 and power loss as a whole or not at all. It survives if
//     Append has returned without an error.
//  2. Nothing is written after something that is not synced. So every frame that another
//     one follows was synced, and if it cannot be read it is damaged: Open names the
//     segment and the offset (*DamageError), and never mistakes it for the end of the log.
//     Only the very last frame of a log that was not closed may be incomplete, and cannot
//     be told from a damaged one.
//  3. What an earlier use of a segment's file has left behind, and frames of another log or
//     place, are never read as the log's: the checksums of frames begin with the log's id
//     and the segment's number, and appends go to a new segment after every Open.
//  4. Every segment begins with the state of all replicas, so only the live entries in a
//     segment keep it: those after the truncation, which goes no further than the
//     checkpoint, so that a replay has all it needs. Segments are freed from the oldest on,
//     once they have no live entries.
//  5. After a failed write or sync nothing is written any more (ErrFailed). A full disk is
//     noticed before anything is written (ErrDiskFull) and does no lasting harm: the space
//     of a segment is allocated before its first entry, with a reserve for batches that
//     free space.
//  6. A log is contiguous, never commits more than it holds, votes once per term,
//     overwrites nothing that is committed, and keeps what no checkpoint covers. A Batch
//     that would violate this is refused (ErrInvalid).
//  7. No damaged byte is returned: entries have checksums of their own, which every read
//     from disk verifies.
//
// # What a crash does
//
// Open reads all segments, makes durable what it has found, ends the last segment there and
// begins a new one. A batch that was being written is there or not, and was acknowledged to
// nobody. Unfinished files are removed, unless the directory turns out to be another log's.
//
// # Limits
//
// A batch takes at most MaxBatchBytes. In memory the log holds Options.CacheBytes of entries
// and 32 bytes for each live entry. On disk it takes the segments with live entries and
// Options.Spares more. Rewrite frees a segment that has few live entries.
package raftlog
