package store

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/percolator-go/percolator/store/raftlog"
	"github.com/percolator-go/percolator/store/space"
)

// Opening of and appending to the write-ahead log of all tablets' Raft logs. Badger holds only
// the state (docs/adr/0028); checkpoint.go keeps the two consistent.

// memorySegmentBytes is the size of a segment of a log in memory. It is small because a test
// may have many logs.
const memorySegmentBytes = 1 << 20

// logDir returns the directory of the log's segments.
func (o Options) logDir() string {
	if o.LogDir != "" {
		return o.LogDir
	}
	return filepath.Join(o.Dir, logDirName)
}

// roomForSegment refuses a segment of the log that would use part of the reserve, of bytes or
// files.
func (s *Store) roomForSegment(bytes int64) error {
	dir := s.opts.logDir()
	free, err := s.space.FreeBytesOf(dir)
	if err != nil {
		return fmt.Errorf("%w: read the free space: %w", raftlog.ErrDiskFull, err)
	}
	if free < s.space.Reserve()+uint64(bytes) {
		return fmt.Errorf("%w: %d bytes are free on the file system of %s, a segment needs %d plus the reserve of %d",
			raftlog.ErrDiskFull, free, dir, bytes, s.space.Reserve())
	}
	if err := s.space.ShortOfFiles(space.ReserveDivisor); err != nil {
		return fmt.Errorf("%w: %w", raftlog.ErrDiskFull, err)
	}
	return nil
}

// openLog opens the write-ahead log with the id, or creates it.
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

// Append makes changes to Raft logs durable and visible before it returns. Any goroutine may call
// it. After ErrDiskFull nothing was written, and the same batch succeeds once there is space. After
// any other error, except raftlog.ErrInvalid and raftlog.ErrBatchTooLarge, the log accepts no more
// changes, nor does the state after the next checkpoint. Only Commit begins and ends replicas, and
// only Checkpoint and Commit make checkpoints.
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

// LogReached returns the log's durable position; see raftlog.Log.Reached.
func (s *Store) LogReached() uint64 { return s.log.Reached() }

// OpenLog returns the Raft log of the tablet's replica, or ErrNoLog.
func (s *Store) OpenLog(tablet uint64) (*raftlog.Replica, error) {
	r := s.log.Replica(tablet)
	if _, err := r.LastIndex(); err != nil {
		return nil, fmt.Errorf("%w: tablet %d", ErrNoLog, tablet)
	}
	return r, nil
}
