package store

import (
	"cmp"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/store/raftlog"
)

// diskSpace compares the free space of the store's file systems, and the other resources of
// its files (files.go), with the watermarks. watch calls look every second, and the writer as it
// writes; the results are safe for concurrent use. Badger writes through memory maps, so a full
// disk would kill the process.
type diskSpace struct {
	opts      Options
	files     files
	blocked   atomic.Pointer[ShortError] // below the watermark at the last check
	exhausted atomic.Pointer[ShortError] // see Exhausted
}

// spaceCheckBytes is the number of bytes that the writer commits between two checks of the
// free space.
const spaceCheckBytes = 4 << 20

// FreeBytes returns the free bytes of the store's file systems for this process: the smaller of
// the state's and the log's. A store in memory has no limit.
func (s *diskSpace) FreeBytes() (uint64, error) {
	bytes, err := s.freeBytes()
	return bytes.free, err
}

// freeBytes returns the free bytes of the file system with fewer. After an error they are those of
// the directory that could not be read, 0.
func (s *diskSpace) freeBytes() (amount, error) {
	least := amount{what: Bytes, dir: s.opts.Dir, watermark: s.opts.MinFreeBytes}
	var err error
	if least.free, err = s.opts.freeBytes(s.opts.Dir); err != nil || s.opts.LogDir == "" {
		return least, err
	}
	log, err := s.opts.freeBytes(s.opts.LogDir)
	if log < least.free {
		least.dir, least.free = s.opts.LogDir, log
	}
	return least, err
}

// freeBytes returns the free bytes of the file system of one of the store's directories.
func (o Options) freeBytes(dir string) (uint64, error) {
	if o.FreeBytes != nil {
		return o.FreeBytes()
	}
	if o.InMemory {
		return math.MaxUint64, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("store: free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// WriteBlocked returns a *ShortError while the free space is below Options.MinFreeBytes, or
// fewer than MinFreeFiles files can be created: the caller should refuse new writes but still
// complete and clean up those in progress. It costs one atomic load.
func (s *diskSpace) WriteBlocked() error { return asError(s.blocked.Load()) }

// Exhausted returns a *ShortError while so little is free that Commit is about to refuse: the
// caller should accept nothing new, not even completions and cleanup, so that accepted work can
// still be written. It costs one atomic load.
func (s *diskSpace) Exhausted() error { return asError(s.exhausted.Load()) }

// asError returns nil for a nil pointer.
func asError(short *ShortError) error {
	if short == nil {
		return nil
	}
	return short
}

// reserve returns the free space that Commit does not use.
func (s *diskSpace) reserve() uint64 { return s.opts.MinFreeBytes / reserveDivisor }

// Room returns a *ShortError unless the store can grow by so many bytes and stay above every
// watermark. It makes system calls; it is for bulk writes that can wait.
func (s *diskSpace) Room(bytes uint64) error {
	least := s.look()
	if short := s.shortOfFiles(1); short != nil {
		return short
	}
	return asError(least.short(least.watermark + bytes))
}

// shortOfFiles returns a *ShortError if fewer than MinFreeFiles/divisor files can be created.
func (s *diskSpace) shortOfFiles(divisor uint64) *ShortError {
	for _, a := range s.opts.amounts(&s.files) {
		if short := a.short(a.watermark / divisor); short != nil {
			return short
		}
	}
	return nil
}

// roomForSegment refuses a segment of the log that would use part of the reserve, of bytes or
// files.
func (s *diskSpace) roomForSegment(bytes int64) error {
	dir := s.opts.logDir()
	free, err := s.opts.freeBytes(dir)
	if err != nil {
		return fmt.Errorf("%w: read the free space: %w", raftlog.ErrDiskFull, err)
	}
	if free < s.reserve()+uint64(bytes) {
		return fmt.Errorf("%w: %d bytes are free on the file system of %s, a segment needs %d plus the reserve of %d",
			raftlog.ErrDiskFull, free, dir, bytes, s.reserve())
	}
	if short := s.shortOfFiles(reserveDivisor); short != nil {
		return fmt.Errorf("%w: %w", raftlog.ErrDiskFull, short)
	}
	return nil
}

// look compares the free resources with the watermarks and returns the free bytes. If they
// cannot be read the disk counts as full.
func (s *diskSpace) look() amount {
	bytes, err := s.freeBytes()
	if err != nil {
		s.opts.Logger.Warn("store: cannot read the free space", "error", err)
	}
	var blocked, exhausted *ShortError
	for _, a := range append(s.opts.amounts(&s.files), bytes) {
		reserve := a.watermark / reserveDivisor
		blocked = cmp.Or(blocked, a.short(a.watermark))
		exhausted = cmp.Or(exhausted, a.short(reserve+reserve/2))
	}
	s.exhausted.Store(exhausted)
	switch was := s.blocked.Swap(blocked); {
	case blocked != nil && was == nil:
		s.opts.Logger.Warn("store: writes are refused", "error", blocked)
	case was != nil && blocked == nil:
		s.opts.Logger.Info("store: writes are accepted again", "free", bytes.free)
	}
	return bytes
}

// checkReserve refuses n more bytes if they would use part of the reserve, and any number while a
// memtable or table might not be able to create its file. It looks only every spaceCheckBytes,
// unless writes are blocked. committing is held.
func (w *Writer) checkReserve(n int) error {
	space := &w.store.diskSpace
	w.sinceSpaceCheck += n
	if w.sinceSpaceCheck < spaceCheckBytes && space.blocked.Load() == nil {
		return nil
	}
	w.sinceSpaceCheck = 0
	bytes := space.look()
	if short := bytes.short(space.reserve() + uint64(n)); short != nil {
		return short
	}
	return asError(space.shortOfFiles(reserveDivisor))
}
