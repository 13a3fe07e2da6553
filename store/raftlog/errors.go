package raftlog

import (
	"errors"
	"fmt"
)

// Permanent errors of Open, which may also return ErrDiskFull.
var (
	// ErrNoLog reports that the directory contains no log, and Options.Create is not set.
	ErrNoLog = errors.New("raftlog: directory contains no log")
	// ErrForeign reports that a segment belongs to another log, or has a format that this
	// package does not support.
	ErrForeign = errors.New("raftlog: segment belongs to another log")
	// ErrDamaged reports that the log differs from what was written. It is wrapped by a
	// *DamageError, which names the place.
	ErrDamaged = errors.New("raftlog: log is damaged")
)

// Errors of an open log.
var (
	// ErrClosed reports that the log is closed.
	ErrClosed = errors.New("raftlog: closed")
	// ErrFailed reports that an earlier write or sync failed with unknown effect. The log accepts
	// no more writes until it is reopened.
	ErrFailed = errors.New("raftlog: an earlier write failed; the log accepts no writes until it is reopened")
	// ErrDiskFull reports that there is too little space, or another resource that files need
	// (Options.Room), for another segment. Nothing was written. Retryable: the same batch succeeds
	// once there is enough.
	ErrDiskFull = errors.New("raftlog: too little disk space or another resource for a new file")
	// ErrBatchTooLarge reports that Batch.Size exceeds MaxBatchBytes. Permanent for this batch.
	ErrBatchTooLarge = errors.New("raftlog: batch is too large")
	// ErrInvalid reports that a batch contradicts the log, such as entries that leave a gap.
	// Nothing was written. It is a fault of the caller.
	ErrInvalid = errors.New("raftlog: batch contradicts the log")
	// ErrNoReplica reports that the log has no replica with this id.
	ErrNoReplica = errors.New("raftlog: no such replica")
)

// DamageError reports the place at which the log differs from what was written. It wraps
// ErrDamaged.
type DamageError struct {
	Segment string // the file's path
	Offset  int64  // offset in the file, in bytes
	What    string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s", ErrDamaged, e.Segment, e.Offset, e.What)
}

// Unwrap returns ErrDamaged.
func (e *DamageError) Unwrap() error { return ErrDamaged }
