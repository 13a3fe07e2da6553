package raftlog

import (
	"errors"
	"fmt"
)

// What Open may find. All but ErrDiskFull are permanent.
var (
	// ErrNoLog reports that the directory holds no log, and Options.Create is not set.
	ErrNoLog = errors.New("raftlog: directory holds no log")
	// ErrForeign reports that a segment belongs to another log, or to a version of this
	// package that this one does not know.
	ErrForeign = errors.New("raftlog: segment belongs to another log")
	// ErrDamaged is wrapped by a *DamageError.
	ErrDamaged = errors.New("raftlog: log is damaged")
)

// What writing and reading may meet.
var (
	// ErrClosed reports that the log is closed.
	ErrClosed = errors.New("raftlog: closed")
	// ErrFailed reports that an earlier write or sync failed with unknown effect, and nothing is
	// written any more until the log is opened again. Permanent.
	ErrFailed = errors.New("raftlog: an earlier write failed, nothing is written until it is reopened")
	// ErrDiskFull reports that there is no room for another segment. Nothing was written.
	// Retryable: the same batch succeeds once there is room.
	ErrDiskFull = errors.New("raftlog: disk is full: free some space, or grow the disk")
	// ErrBatchTooLarge reports that a batch encodes to more than MaxBatchBytes. Permanent for this
	// batch.
	ErrBatchTooLarge = errors.New("raftlog: batch is too large")
	// ErrInvalid reports that a batch does not fit what the log holds, such as entries that leave a
	// gap. Nothing was written. It is an error of the caller.
	ErrInvalid = errors.New("raftlog: batch does not fit the log")
	// ErrNoReplica reports that the log knows no replica of this id.
	ErrNoReplica = errors.New("raftlog: no such replica")
)

// DamageError says where the log is not what was written. It wraps ErrDamaged.
type DamageError struct {
	Segment string // the file's path
	Offset  int64  // in the file, in bytes
	What    string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrDamaged, e.Segment, e.Offset, e.What)
}

// Unwrap returns ErrDamaged.
func (e *DamageError) Unwrap() error { return ErrDamaged }
