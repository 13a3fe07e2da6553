package store

import (
	"errors"
	"fmt"
)

// What Open may find. All are permanent until somebody does what the text says.
var (
	// ErrInUse reports that another Store, of this or another process, has the directory open.
	ErrInUse = errors.New("store: directory is in use by another process: stop it, or choose another directory")
	// ErrForeign reports that the directory holds files, but no store of ours.
	ErrForeign = errors.New("store: directory is not empty and holds no store: choose an empty directory, or the right one")
	// ErrForeignLog reports that the log's directory holds something else than this store's log.
	ErrForeignLog = errors.New("store: the Raft log's directory belongs to another store, or to something else: " +
		"name the one that this store was started with before, or an empty one for a new store")
	// ErrLogMissing reports that there is no log where it was looked for. Without it nothing of the
	// state may be served: what is behind the last checkpoint, and what this node has
	// voted, is in the log alone.
	ErrLogMissing = errors.New("store: the Raft log is not there: name the log directory that this store was " +
		"started with before; if it is lost, empty both directories and let the node join anew")
	// ErrDamaged reports that the directory is a store's, but parts of it are missing or
	// unreadable.
	ErrDamaged = errors.New("store: directory is damaged: restore it from a backup, or empty it and let the node join anew")
)

// What writes may meet.
var (
	// ErrClosed reports that the store is closed, or closing.
	ErrClosed = errors.New("store: closed")
	// ErrFailed reports that an earlier write or sync failed, and nothing is written any more: what
	// is on disk is known up to the last commit that returned, no further. Reads may fail
	// with it too. Close the store and open it again once the cause is gone. Permanent.
	ErrFailed = errors.New("store: an earlier write failed, nothing is written until the store is reopened")
	// ErrDiskFull reports that free space, or another resource that files need (ShortError),
	// is below the watermark. Retryable after some has been freed. Badger writes through
	// memory maps, and a full disk would kill the process.
	ErrDiskFull = errors.New("store: free disk space is below the watermark: free some, or grow the disk")
	// ErrBatchTooLarge reports that one batch is above Store.MaxBatchBytes or MaxBatchLen.
	// Permanent for this batch.
	ErrBatchTooLarge = errors.New("store: batch is too large for one Badger transaction")
	// ErrCompactionStuck reports that a compaction waits for files (ShortError) and never
	// ends, because the store closes. Nothing is lost. Badger stays open until the process
	// ends.
	ErrCompactionStuck = errors.New("store: a compaction still waits for room for its files: end the process before the store is opened again")
	// ErrCorrupt reports that what was read back is not what was written. Permanent.
	ErrCorrupt = errors.New("store: stored data is corrupt")
	// ErrNoLog reports that there is no Raft log of that tablet: InitialLog was never committed, or
	// DeleteReplica was.
	ErrNoLog = errors.New("store: no raft log of this tablet")
)

// DamagedError says that a file of the store is not what was written. It is ErrDamaged, and
// ErrFailed too: nothing of such a store is read or written any more, also not after it is opened
// again.
type DamagedError struct {
	File string
	Err  error
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrDamaged, e.File, e.Err)
}

// Unwrap returns what was found.
func (e *DamagedError) Unwrap() error { return e.Err }

// Is implements errors.Is.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged || target == ErrFailed }
