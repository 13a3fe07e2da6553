// Package backup copies a cluster's tables at one timestamp into a directory or an object
// store while everything runs, and writes them back into another cluster (docs/adr/0034). It also
// loads sorted rows into an empty table, as a restore writes them (Load, docs/adr/0074).
//
// A full backup has every cell of a snapshot at its timestamp At, including acknowledgments
// of observers. An incremental one has every record committed after its parent's At and no
// later than its own, including deletes. A chain is a full backup and the
// incremental ones that name each other as parents; it can restore every timestamp
// from the full backup's to the last one's.
//
// # Format
//
// A Location holds any number of backups. Each is a folder, named by the time of its
// timestamp and its kind:
//
//	20261122T221500.123Z-full/manifest      written last: with it the backup is whole
//	20261122T221500.123Z-full/plan          during the backup: its timestamp and ranges
//	20261122T221500.123Z-full/000012.range  during the backup: a completed range and its file
//	20261122T221500.123Z-full/000012-1f3a5b7c.data
//	20261122T221500.123Z-full/pending000-5b7c1f3a.data  timers or weak notifications
//
// Manifest, plan and range files are a line, "percolator backup manifest 1 sha256 " (or plan, or
// range) and 64 hexadecimal digits, and then JSON, of which that is the SHA-256. The manifest
// names each data file with its size, SHA-256, range of rows and number of records; an
// incremental one its parent with the SHA-256 of the parent's manifest.
//
// A data file is the eight bytes "PRCBKUP1" and then blocks. A block is three little-endian 32-bit
// numbers, the compressed and the uncompressed length of its content, and the CRC-32C of the first
// eight bytes and the compressed content; then the content, compressed with zstd: records of at
// least blockBytes together, in the last block perhaps fewer, each a BackupRecord
// (internal/wire/backup.proto) behind its length as a varint. A block of length 0 ends the file.
// Records are in the order of rows, column classes and columns; of one cell the newest comes first.
// The 1 in all of these is the version of the format.
//
// # Invariants
//
//  1. A backup exists as a whole or not at all: its manifest is written last, after all data
//     files have been synced (a directory) or acknowledged (an object store).
//
//  2. A backup of a row equals a read at the backup's timestamp: locks are resolved or waited
//     for, and collected history is an error, never a gap.
//
//  3. No byte of a backup is used before its block's checksum is verified; each file is also
//     verified as a whole when its end is read.
//
//  4. A table being restored can't be opened by name until it is complete, and its tablets
//     reject clients that opened it before.
//
// A crash during a backup or a restore leaves files without a manifest, or tables with a
// mark. The same command continues from there: completed ranges are not read again, and a
// restore or load continues behind the last existing cell of each range. Called by: internal/cli,
// and by node for scheduled backups.
package backup
