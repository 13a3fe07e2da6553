package store

import (
	"errors"
	"fmt"

	"github.com/percolator-go/percolator/store/space"
)

// Errors of Open. They persist until an operator follows the text.
var (
	// ErrInUse reports that another Store, of this or another process, has the directory open.
	ErrInUse = errors.New("store: directory is in use by another process: stop it, or choose another directory")
	// ErrForeign reports that the directory contains files but no store.
	ErrForeign = errors.New("store: directory is not empty and contains no store: choose an empty directory or a store's")
	// ErrForeignLog reports that the log's directory contains another store's log, or other
	// files.
	ErrForeignLog = errors.New("store: the Raft log directory belongs to another store or program: " +
		"pass the directory that this store used before, or an empty one for a new store")
	// ErrLogMissing reports that the log's directory contains no log. The state cannot be
	// served without it: the entries after the last checkpoint, and this node's votes, are
	// only in the log.
	ErrLogMissing = errors.New("store: the Raft log is missing: pass the log directory that this store used " +
		"before; if it is lost, empty both directories and let the node join again")
	// ErrDamaged reports that the directory is a store's, but parts of it are missing or
	// unreadable.
	ErrDamaged = errors.New("store: directory is damaged: move it away and start the node on an empty one, so that it joins again; " +
		"a tablet without another replica must be restored from a backup")
)

// Errors of an open store.
var (
	// ErrClosed reports that the store is closed or closing.
	ErrClosed = errors.New("store: closed")
	// ErrFailed reports that an earlier write or sync failed and the store accepts no more
	// writes: beyond the last commit that returned, the contents of the disk are unknown.
	// Reads may fail with it too. Permanent: close the store, remove the cause, reopen it.
	ErrFailed = errors.New("store: an earlier write failed; the store accepts no writes until it is reopened")
	// ErrDiskFull reports that free space, or another resource that files need (space.ShortError),
	// is below the watermark. It can be retried once space is free. The watermark exists
	// because Badger writes through memory maps, where a full disk kills the process.
	ErrDiskFull = space.ErrDiskFull
	// ErrBatchTooLarge reports that one batch exceeds MaxBatchBytes or MaxBatchLen, or that one
	// entry exceeds a Badger transaction. Permanent for this batch.
	ErrBatchTooLarge = errors.New("store: batch is too large")
	// ErrCompactionStuck reports that the store was closed while a compaction waits for files
	// (space.ShortError), which never ends. Nothing is lost. Badger stays open until the process
	// ends.
	ErrCompactionStuck = space.ErrCompactionStuck
	// ErrCorrupt reports that data read differs from the data written. Permanent.
	ErrCorrupt = errors.New("store: stored data is corrupt")
	// ErrNoLog reports that the tablet has no Raft log here: InitialLog was never committed,
	// or DeleteReplica was.
	ErrNoLog = errors.New("store: no Raft log of this tablet")
)

// DamagedError reports that a file of the store differs from the written data, or that a compaction
// lost rows. It is both ErrDamaged and ErrFailed: reads and writes of the state fail, and so does
// every later Open.
type DamagedError struct {
	File string
	Err  error
}

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrDamaged, e.File, e.Err)
}

// Unwrap returns the error of the check that found the damage.
func (e *DamagedError) Unwrap() error { return e.Err }

// Is implements errors.Is.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged || target == ErrFailed }
