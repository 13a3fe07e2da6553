package store

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/store/raftlog"
)

// spaceCheckBytes: Commit looks at the free space again after so many bytes.
const spaceCheckBytes = 4 << 20

// counters count what one writer did since Open.
type counters struct {
	txns, batches, bytes atomic.Uint64
}

// Stats are figures of a Store since Open. Sizes are in bytes.
type Stats struct {
	Txns    uint64 // Badger transactions
	Batches uint64 // batches in them: Batches/Txns is what group commit gains
	Bytes   uint64 // keys, values and overhead as counted by Batch.Size

	Log          raftlog.Stats
	LogFreeBytes uint64 // of the file system that the log is on
	// bytes of the log behind the last checkpoint: what a start applies again
	Unchecked     uint64
	CheckpointAge time.Duration // since that was made; 0: nothing is behind it

	Snaps       int    // open now
	Sequence    uint64 // of the state: the newest that Snaps read at
	MemoryBytes uint64 // of the active memtable and the indices: what Badger holds outside of files
	DiskBytes   uint64 // allocated by the store's files: sparse ones count what they hold
}

// Stats returns figures for metrics. It walks the directory: not for hot paths.
func (s *Store) Stats() Stats {
	var st Stats
	count := &s.state.count
	st.Txns, st.Batches, st.Bytes = count.txns.Load(), count.batches.Load(), count.bytes.Load()
	st.MemoryBytes = s.state.memory()
	st.Log = s.log.Stats()
	if st.Unchecked, st.CheckpointAge = s.checkpoints.since(st.Log.Written); st.Unchecked == 0 {
		st.CheckpointAge = 0
	}
	st.LogFreeBytes, _ = s.opts.freeBytes(s.opts.logDir())
	st.Snaps = s.snaps()
	s.state.seq.mu.Lock()
	st.Sequence = s.state.seq.visible
	s.state.seq.mu.Unlock()
	st.DiskBytes = s.diskBytes()
	return st
}

// memory estimates what a database holds in memory.
func (d *database) memory() uint64 {
	var n uint64
	for _, t := range d.db.Tables() {
		n += uint64(t.IndexSz + t.BloomFilterSize)
	}
	return n + uint64(d.db.Opts().MemTableSize)
}

// diskBytes adds up the blocks of the store's files; files that vanish meanwhile count nothing.
func (s *Store) diskBytes() uint64 {
	if s.opts.InMemory {
		return 0
	}
	var n uint64
	dirs := []string{s.opts.Dir}
	if s.opts.LogDir != "" {
		dirs = append(dirs, s.opts.LogDir)
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err == nil && !e.IsDir() && unix.Stat(path, &st) == nil {
				n += uint64(st.Blocks) * 512
			}
			return nil
		})
	}
	return n
}

// FreeBytes returns the space that the store's file systems have left for this process,
// in bytes: that of the state's or of the log's, whichever has less. In memory there is
// no limit.
func (s *Store) FreeBytes() (uint64, error) {
	state, err := s.opts.freeBytes(s.opts.Dir)
	if err != nil || s.opts.LogDir == "" {
		return state, err
	}
	log, err := s.opts.freeBytes(s.opts.LogDir)
	return min(state, log), err
}

// freeBytes is the space that the file system of one of the store's directories has left.
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

// WriteBlocked returns ErrDiskFull, wrapped, while free space is below
// Options.MinFreeBytes: take no new writes, but finish and clean up. It costs one load:
// space is looked at as the store writes, and by its background worker.
func (s *Store) WriteBlocked() error {
	if s.blocked.Load() {
		return fmt.Errorf("%w of %d bytes", ErrDiskFull, s.opts.MinFreeBytes)
	}
	return nil
}

// Exhausted returns ErrDiskFull, wrapped, while free space is so little that Commit is
// about to refuse: take nothing on, not even what finishes and cleans up, so that what is
// under way can be written to its end. Like WriteBlocked it costs a load.
func (s *Store) Exhausted() error {
	if s.exhausted.Load() {
		return fmt.Errorf("%w of %d bytes, and next to none is left", ErrDiskFull,
			s.opts.MinFreeBytes)
	}
	return nil
}

// reserve is the free space that Commit leaves alone.
func (s *Store) reserve() uint64 { return s.opts.MinFreeBytes / reserveDivisor }

// Room returns ErrDiskFull, wrapped, unless the store may grow by so many bytes without
// free space sinking below Options.MinFreeBytes. For bulk writes that can wait: it asks
// the file system.
func (s *Store) Room(bytes uint64) error {
	if free := s.lookAtSpace(); free < s.opts.MinFreeBytes || free-s.opts.MinFreeBytes < bytes {
		return fmt.Errorf("%w of %d bytes: %d are free, %d more are needed", ErrDiskFull,
			s.opts.MinFreeBytes, free, bytes)
	}
	return nil
}

// lookAtSpace refreshes blocked and returns the free bytes. Not knowing counts as full.
func (s *Store) lookAtSpace() uint64 {
	free, err := s.FreeBytes()
	if err != nil {
		s.opts.Logger.Warn("store: cannot read free space", "error", err)
	}
	low := free < s.opts.MinFreeBytes
	switch was := s.blocked.Swap(low); {
	case low && !was:
		s.opts.Logger.Warn("store: too little free space: no writes are taken", "free", free,
			"watermark", s.opts.MinFreeBytes)
	case was && !low:
		s.opts.Logger.Info("store: enough free space again: writes are taken", "free", free,
			"watermark", s.opts.MinFreeBytes)
	}
	s.exhausted.Store(free < s.reserve()+s.reserve()/2)
	return free
}

// checkReserve refuses n more bytes if they would eat into the last reserve. w's lock is held.
func (s *Store) checkReserve(w *Writer, n int) error {
	w.unmet += n
	if w.unmet < spaceCheckBytes && !s.blocked.Load() {
		return nil
	}
	w.unmet = 0
	if free := s.lookAtSpace(); free < s.reserve()+uint64(n) {
		return fmt.Errorf("%w: %d bytes left", ErrDiskFull, free)
	}
	return nil
}
