// Package backup copies a cluster's tables at one timestamp into a directory or an object
// store while everything runs, and writes them back into another cluster (docs/adr/0034).
//
// A full backup has every cell as a snapshot at its timestamp At shows it, acknowledgments
// of observers among them. An incremental one has every record that was committed after
// its parent's At and no later than its own, deletes too. A chain is a full backup and the
// incremental ones that name each other as parents; it has the state at the full backup's
// timestamp and at every one from there to the last one's.
//
// # Format
//
// A Location holds any number of backups. Each is a folder, named by the time of its
// timestamp and its kind:
//
//	20261122T221500.123Z-full/manifest      written last: the backup is there if this is
//	20261122T221500.123Z-full/plan          while it is being made: its timestamp and ranges
//	20261122T221500.123Z-full/000012.range  likewise: a range is done, and which file has it
//	20261122T221500.123Z-full/000012-1f3a5b7c.data
//
// Manifest, plan and range files are a line, "percolator backup manifest 1 sha256 " and 64
// hexadecimal digits, and then JSON, of which that is the SHA-256. The manifest names each
// data file with its size, SHA-256, range of rows and number of records; an incremental one
// its parent with the SHA-256 of the parent's manifest.
//
// A data file is the eight bytes "PRCBKUP1" and then blocks. A block is three little-endian
// 32-bit numbers, the length of its content compressed, its length before that, and the
// CRC-32C of the first eight bytes and the compressed content; then the content, compressed
// with zstd: records of at least blockBytes together, each a BackupRecord
// (internal/wire/backup.proto) behind its length as a varint. A block of length 0 ends the
// file. Records are in the order of rows, column classes and columns; of one cell the newest
// comes first. The 1 in all of these is the version of the format.
//
// # Invariants
//
//  1. A backup is there whole or not at all: its manifest is written last, after all data
//     files have been synced (a directory) or acknowledged (an object store).
//
//  2. What a backup says of a row is what a read at its timestamp would have been answered:
//     locks are resolved or waited for, and history that is gone is an error, never a gap.
//
//  3. No byte of a backup is used before its checksum was compared: of each block, and of
//     each file as a whole when its end is read.
//
//  4. A table that is being restored can't be opened by name until all of it is there, and
//     who had opened it before is refused by its tablets.
//
// A crash of the process that makes a backup, or restores one, leaves files without a
// manifest, or tables with a mark. The same command goes on from there: ranges that are done
// are not read again, and of rows that are there already only those behind the last are
// written. Called by: internal/cli; node, for scheduled backups.
package backup
