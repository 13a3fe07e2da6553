// Package raftlog implements a node's write-ahead log, shared by all its replicas: Raft entries,
// HardStates, truncations, and checkpoints of the state machines, which package store keeps in
// Badger (docs/adr/0028).
//
// # Who calls it
//
// The log actor appends: all requests in its mailbox form one Batch, which one write and one
// fdatasync make durable. Package store appends checkpoints and the begin and end of replicas.
// Each replica reads its own log through a Replica, its raft.Storage, on its own goroutine.
//
// # Invariants
//
//  1. After kill -9 or power loss a Batch is present as a whole or not at all. If Append returned
//     without an error it is present.
//  2. Each frame is synced before the next one is written. So if a frame that another one
//     follows cannot be read, it is damaged: Open reports the segment and the offset
//     (*DamageError), and never mistakes it for the end of the log. Only the very last frame of a
//     log that was not closed may be incomplete, and is indistinguishable from a damaged one.
//  3. Data from an earlier use of a segment's file, and frames of another log or position, are
//     never read as the log's: frame checksums are seeded with the log's id and the segment's
//     number, and appends go to a new segment after every Open.
//  4. Every segment begins with the state of all replicas, so a segment is needed only for its
//     live entries: those after the truncation, which never passes the checkpoint, so that a
//     replay has all the entries that it needs. Segments are freed from the oldest on, once they
//     contain no live entries.
//  5. After a failed write or sync the log accepts no more writes (ErrFailed). A full disk is
//     detected before anything is written (ErrDiskFull) and does no lasting harm: the space of a
//     segment is allocated before its first entry, with a reserve for batches that free space.
//  6. A log is contiguous, never commits entries that it does not contain, votes once per term,
//     never overwrites committed entries, and keeps entries that no checkpoint covers until a Begin
//     or Destroy. Append refuses a Batch that would violate this (ErrInvalid).
//  7. Reads never return damaged data: each entry has its own checksum, which every read from
//     disk verifies.
//
// # What a crash does
//
// Open reads all segments, makes their contents durable, seals the last one and begins a new one.
// A batch that was being written is present or absent; it was never acknowledged. Open removes
// unfinished files, unless the directory contains another log.
//
// # Limits
//
// A batch has at most MaxBatchBytes. In memory the log holds Options.CacheBytes of entries and 32
// bytes for each live entry. On disk it has all segments from the oldest with live entries on, and
// Options.Spares more. Rewrite frees the oldest segment.
package raftlog
