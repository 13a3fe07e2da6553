package store

import (
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/store/raftlog"
)

// diskSpace compares the free space of the store's file systems with the watermarks. The
// background worker looks at it every second and the writer as it writes; any goroutine
// may ask. Badger writes through memory maps, so a full disk would kill the process.
type diskSpace struct {
	opts      Options
	blocked   atomic.Bool // below MinFreeBytes when last looked at
	exhausted atomic.Bool // see Exhausted
}

// spaceCheckBytes is how many bytes the writer commits between two looks at the free space.
const spaceCheckBytes = 4 << 20

// FreeBytes returns the bytes that the store's file systems have left for this process:
// those of the state's or of the log's, whichever has less. In memory there is no limit.
func (s *diskSpace) FreeBytes() (uint64, error) {
	state, err := s.opts.freeBytes(s.opts.Dir)
	if err != nil || s.opts.LogDir == "" {
		return state, err
	}
	log, err := s.opts.freeBytes(s.opts.LogDir)
	return min(state, log), err
}

// freeBytes returns the bytes that the file system of one of the store's directories has
// left.
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

// WriteBlocked returns ErrDiskFull, wrapped, while the free space is below
// Options.MinFreeBytes: new writes should be refused, but work under way may still be
// finished and cleaned up. It costs one load.
func (s *diskSpace) WriteBlocked() error {
	if s.blocked.Load() {
		return fmt.Errorf("%w (the watermark is %d bytes)", ErrDiskFull, s.opts.MinFreeBytes)
	}
	return nil
}

// Exhausted returns ErrDiskFull, wrapped, while so little space is free that Commit is
// about to refuse: nothing new should be accepted, not even what finishes and cleans up,
// so that work under way can still be written. It costs one load.
func (s *diskSpace) Exhausted() error {
	if s.exhausted.Load() {
		return fmt.Errorf("%w (the watermark is %d bytes, and next to none is left)", ErrDiskFull,
			s.opts.MinFreeBytes)
	}
	return nil
}

// reserve returns the free space that Commit leaves alone.
func (s *diskSpace) reserve() uint64 { return s.opts.MinFreeBytes / reserveDivisor }

// Room returns ErrDiskFull, wrapped, unless the store may grow by so many bytes with
// Options.MinFreeBytes still free. It asks the file system, and is meant for bulk writes
// that can wait.
func (s *diskSpace) Room(bytes uint64) error {
	if free := s.look(); free < s.opts.MinFreeBytes || free-s.opts.MinFreeBytes < bytes {
		return fmt.Errorf("%w (the watermark is %d bytes; %d are free, and %d more are needed)", ErrDiskFull,
			s.opts.MinFreeBytes, free, bytes)
	}
	return nil
}

// roomForSegment refuses a segment of the log that would use up part of the reserve.
func (s *diskSpace) roomForSegment(bytes int64) error {
	free, err := s.opts.freeBytes(s.opts.logDir())
	if err != nil {
		return fmt.Errorf("%w: %w", raftlog.ErrDiskFull, err)
	}
	if free < s.reserve()+uint64(bytes) {
		return fmt.Errorf("%w: %d bytes left for a segment of %d", raftlog.ErrDiskFull, free, bytes)
	}
	return nil
}

// look reads the free space and returns it. If it cannot be read the disk counts as full.
func (s *diskSpace) look() uint64 {
	free, err := s.FreeBytes()
	if err != nil {
		s.opts.Logger.Warn("store: cannot read the free space", "error", err)
	}
	low := free < s.opts.MinFreeBytes
	switch was := s.blocked.Swap(low); {
	case low && !was:
		s.opts.Logger.Warn("store: too little free space: writes are refused", "free", free,
			"watermark", s.opts.MinFreeBytes)
	case was && !low:
		s.opts.Logger.Info("store: enough free space again: writes are accepted", "free", free,
			"watermark", s.opts.MinFreeBytes)
	}
	s.exhausted.Store(free < s.reserve()+s.reserve()/2)
	return free
}

// checkReserve refuses n more bytes if they would use up part of the reserve. mu is held.
func (w *Writer) checkReserve(n int) error {
	space := &w.store.diskSpace
	w.unmet += n
	if w.unmet < spaceCheckBytes && !space.blocked.Load() {
		return nil
	}
	w.unmet = 0
	if free := space.look(); free < space.reserve()+uint64(n) {
		return fmt.Errorf("%w: %d bytes left", ErrDiskFull, free)
	}
	return nil
}
