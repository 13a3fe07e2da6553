// Package space compares the free bytes, inodes, file descriptors and memory maps of a store's
// files with watermarks. Badger writes through memory maps, so that a full disk would kill the
// process, and loses a table without an error if it cannot create its file (docs/adr/0056).
//
// Below MinFreeFiles (512) free files WriteBlocked refuses, below 192 Exhausted, below 128 commits
// and segments of the log, and below 64 compactions wait (Gate). Of bytes the limits are MinFreeBytes
// (default 512 MiB), three eighths and a quarter of it.
//
// A Disk keeps the result of the last Look; its methods may be called concurrently. A crash loses
// nothing: the next Disk counts again. Package store is the only caller.
package space
