package store

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/percolator-go/percolator/store/raftlog"
)

// The Raft logs of all tablets are one write-ahead log, beside Badger, which has the state
// alone (docs/adr/0028). This file opens it; checkpoint.go ties the two together.

// memorySegmentBytes is what a segment of a log in memory takes: a test has many logs.
const memorySegmentBytes = 1 << 20

// logDir is where the log's segments are.
func (o Options) logDir() string {
	if o.LogDir != "" {
		return o.LogDir
	}
	return filepath.Join(o.Dir, logDirName)
}

// openLog opens the write-ahead log that the directory belongs to, or makes it.
func (s *Store) openLog(id [16]byte, create bool) error {
	o := raftlog.Options{
		ID: id, Create: create, InMemory: s.opts.InMemory, NoSync: s.opts.NoSync,
		SyncDelay: s.opts.SyncDelay, Room: s.roomForSegment,
	}
	dir := ""
	if s.opts.InMemory {
		o.SegmentBytes, o.Spares = memorySegmentBytes, -1
	} else {
		dir = s.opts.logDir()
	}
	log, err := raftlog.Open(dir, o)
	switch {
	case errors.Is(err, raftlog.ErrNoLog):
		return fmt.Errorf("%w: %s", ErrLogMissing, dir)
	case errors.Is(err, raftlog.ErrForeign):
		return fmt.Errorf("%w: %w", ErrForeignLog, err)
	case errors.Is(err, raftlog.ErrDamaged):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return fmt.Errorf("store: open the Raft log: %w", err)
	}
	s.log = log
	return nil
}

// Append makes changes to Raft logs durable and visible, and returns then. Any goroutine may call
// it. On ErrDiskFull nothing was written, and the same batch succeeds once there is room; after an
// error other than that and raftlog.ErrInvalid and ErrBatchTooLarge nothing is written any more.
// Replicas begin and end, and checkpoints are made, by Commit and Checkpoint alone.
func (s *Store) Append(b *raftlog.Batch) error {
	err := s.log.Append(b)
	for _, same := range [...]struct{ theirs, ours error }{
		{raftlog.ErrDiskFull, ErrDiskFull}, {raftlog.ErrFailed, ErrFailed},
		{raftlog.ErrClosed, ErrClosed},
	} {
		if errors.Is(err, same.theirs) {
			return fmt.Errorf("%w: %w", same.ours, err)
		}
	}
	return err
}

// OpenLog returns the Raft log of the tablet's replica, or ErrNoLog.
func (s *Store) OpenLog(tablet uint64) (*raftlog.Replica, error) {
	r := s.log.Replica(tablet)
	if _, err := r.LastIndex(); err != nil {
		return nil, fmt.Errorf("%w: tablet %d", ErrNoLog, tablet)
	}
	return r, nil
}
