package store

import (
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/store/raftlog"
)

// counters count the writer's work since Open.
type counters struct {
	txns, batches, bytes atomic.Uint64
}

// Stats are figures of a Store since Open. Sizes are in bytes.
type Stats struct {
	Txns    uint64 // Badger transactions
	Batches uint64 // batches committed by these Txns; Batches/Txns is the gain of group commit
	Bytes   uint64 // keys, values and overhead as counted by Batch.Size

	Log          raftlog.Stats
	LogFreeBytes uint64 // free bytes of the log's file system
	// Unchecked is the number of bytes appended to the log since the last checkpoint, which are
	// applied again after a crash. It is too low after a failed attempt at a checkpoint.
	Unchecked     uint64
	CheckpointAge time.Duration // time since the last checkpoint or attempt; 0 if Unchecked is 0

	Snaps     int    // open Snaps
	DiskBytes uint64 // blocks allocated to the store's files
}

// Stats returns figures for metrics. It walks the directory, so it is not for hot paths.
func (s *Store) Stats() Stats {
	var st Stats
	count := &s.state.count
	st.Txns, st.Batches, st.Bytes = count.txns.Load(), count.batches.Load(), count.bytes.Load()
	st.Log = s.log.Stats()
	if st.Unchecked, st.CheckpointAge = s.checkpoints.since(st.Log.Written); st.Unchecked == 0 {
		st.CheckpointAge = 0
	}
	st.LogFreeBytes, _ = s.space.FreeBytesOf(s.opts.logDir())
	st.Snaps = s.snaps()
	st.DiskBytes = s.opts.diskBytes()
	return st
}

// Trees are figures of the state's tables by level.
type Trees struct {
	Levels []Level
	// Stalled reports that level 0 has so many tables that writes wait for compactions.
	Stalled     bool
	Compactions uint64 // compactions since Open
	Stalls      uint64 // waits of over a second of Badger's writer for a compaction, since Open
}

// Level is one level of the tree.
type Level struct{ Tables, Bytes uint64 }

// Trees returns the figures. It locks Badger's levels, so it is not for hot paths.
func (s *Store) Trees() Trees {
	out := Trees{Compactions: s.badger.compactions.Load(), Stalls: s.badger.stalls.Load()}
	for _, l := range s.state.db.Levels() {
		out.Levels = append(out.Levels, Level{uint64(l.NumTables), uint64(l.Size)})
	}
	out.Stalled = len(out.Levels) > 0 &&
		out.Levels[0].Tables >= uint64(s.state.db.Opts().NumLevelZeroTablesStall)
	return out
}

// Syncs returns the durations of the log's syncs.
func (s *Store) Syncs() metrics.Histogram { return s.log.Stats().Syncs }

// diskBytes returns the sum of the blocks of the store's files. Files deleted during the
// walk do not count.
func (o Options) diskBytes() uint64 {
	if o.InMemory {
		return 0
	}
	var n uint64
	dirs := []string{o.Dir}
	if o.LogDir != "" {
		dirs = append(dirs, o.LogDir)
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
