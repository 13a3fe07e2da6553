package store

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store/space"
)

// Defaults of Options, in bytes, and parameters of Badger.
const (
	// DefaultMemTableSize was measured as the cheapest of 16, 32 and 64 MiB. Small ones leave more
	// tables to search and to compact; for a large one the kernel has to provide new memory every
	// time (docs/adr/0015).
	DefaultMemTableSize = 32 << 20
	// DefaultMinFreeBytes has room for all unflushed memtables and one compaction.
	DefaultMinFreeBytes = 512 << 20

	// minMemTableSize keeps a chunk below Badger's value threshold, which is 15 % of the
	// memtable at most.
	minMemTableSize = 2 << 20

	valueThreshold   = 1 << 20 // Badger's maximum; chunk.go keeps every value below it
	valueLogFileSize = 1 << 20 // Badger's minimum: the value log stays empty
	numMemtables     = 3
	numCompactors    = 2

	// Dead entries disappear when tables are compacted together, so compacting early keeps their
	// number low. Level 0 is compacted when its size reaches Commit's reserve of disk space less
	// one memtable, but at no fewer than two tables and no more than eight, because a lookup
	// searches them one by one.
	// With the defaults that is at three tables, 96 MiB. Writes stall at three times as many. A
	// store below half a gigabyte has one level below level 0.
	levelZeroLeast  = 2
	levelZeroMost   = 8
	levelZeroStalls = 3
	baseLevelSize   = 512 << 20
)

// Options configure a Store. Only Dir is required, unless InMemory is set; zero fields get the
// defaults.
type Options struct {
	// Dir is the store's directory, which is created if missing. It contains VERSION, MEMTABLE,
	// LOCK, Badger's directory and, without LogDir, the log's.
	Dir string
	// LogDir is the directory of the Raft log, which is created if missing; it may be on a
	// device of its own. The default is a directory inside Dir.
	LogDir   string
	InMemory bool // keep nothing on disk; Dir and LogDir must be empty. For tests.
	Logger   *slog.Logger
	// Versions are the disk formats that may be opened; the default is those that this build
	// supports.
	Versions version.Range

	// Memory is the number of bytes that the process may use, from which the store's sizes
	// follow (SizesFor). Zero means no limit.
	Memory uint64
	// MemTableSize is in bytes; less than 2 MiB means 2 MiB. The default follows from Memory.
	MemTableSize int64
	// MinFreeBytes is the free disk space below which WriteBlocked refuses; Commit refuses
	// below a quarter of it. Defaults to 512 MiB.
	MinFreeBytes uint64

	// ReclaimInterval is the time between two passes of Reclaim, which compact only if less than a
	// memtable was written since the previous one. Defaults to 1 min. If it is negative there are
	// no passes.
	ReclaimInterval time.Duration

	SyncDelay time.Duration // sleep after each sync, for benchmarks of slower disks
	NoSync    bool          // never sync, which loses acknowledged writes. For tests of tests.

	// Crashes lets Reopen open a store in memory as after a crash. It keeps all versions
	// since the last checkpoint. For tests.
	Crashes bool

	// FreeBytes returns the free disk space, for tests. Defaults to that of the file system.
	FreeBytes func() (uint64, error)

	table      int64        // size in bytes of a table below level 0
	hotCells   int          // number of cells whose newest entries are kept
	growth     int          // factor between the sizes of tables from level to level
	beforeTxn  func() error // for tests: called before each Txn, which fails with its error
	beforeSync func() error // for tests: called by each syncState, which fails with its error
}

func (o Options) withDefaults() Options {
	o.Versions = cmp.Or(o.Versions, version.Known())
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	sizes := SizesFor(o.Memory)
	if o.hotCells = sizes.HotCells; o.InMemory { // a test may have a hundred such stores
		o.hotCells = leastHotCells
	}
	if o.table, o.growth = sizes.Table, 1; sizes.Grow {
		o.growth = 2
	}
	o.MemTableSize = max(cmp.Or(o.MemTableSize, sizes.MemTable), minMemTableSize)
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, DefaultMinFreeBytes)
	o.ReclaimInterval = cmp.Or(o.ReclaimInterval, time.Minute)
	return o
}

// space returns the watermarks of the store's files.
func (o Options) space() *space.Disk {
	dirs := []string{o.Dir}
	if o.LogDir != "" {
		dirs = append(dirs, o.LogDir)
	}
	return space.New(space.Options{
		Dirs: dirs, InMemory: o.InMemory, MinFreeBytes: o.MinFreeBytes, Logger: o.Logger, FreeBytes: o.FreeBytes,
	})
}

// levelZeroTables returns the number of tables at which level 0 is compacted.
func (o Options) levelZeroTables() int {
	bytes := int64(min(o.MinFreeBytes/space.ReserveDivisor, 1<<40)) - o.MemTableSize
	return int(min(max(bytes/o.MemTableSize, levelZeroLeast), levelZeroMost))
}

// badgerOptions returns the options that open a database in dir. Its memory consists of the
// memtable being filled, the one being flushed and up to numMemtables waiting in between, each of
// MemTableSize plus 30 %, which is touched as they fill; what compactions write (memory.go); and
// the indices and bloom filters of all tables, about 1 % of the data. Tables and log files are
// mapped, so their pages belong to the page cache and not to the process.
func (o Options) badgerOptions(dir string, log badger.Logger) badger.Options {
	b := badger.DefaultOptions(dir)
	b.Logger = log
	b.InMemory = o.InMemory
	b.SyncWrites = false // checkpoints do
	b.MemTableSize = o.MemTableSize
	b.NumMemtables = numMemtables
	b.NumCompactors = numCompactors
	b.NumLevelZeroTables = o.levelZeroTables()
	b.NumLevelZeroTablesStall = levelZeroStalls * b.NumLevelZeroTables
	b.BaseLevelSize = baseLevelSize
	b.BaseTableSize = min(o.table, o.MemTableSize)
	b.TableSizeMultiplier = o.growth
	b.ValueThreshold = min(valueThreshold, o.MemTableSize*15/100)
	b.ValueLogFileSize = valueLogFileSize
	// Blocks are read in place from mapped files, with the page cache as the only cache: a
	// lookup costs a third less than with Snappy and a block cache (docs/adr/0002). All
	// indices are in memory, because a bloom filter must answer without reading the disk.
	b.Compression = options.None
	b.BlockCacheSize = 0
	b.IndexCacheSize = 0
	b.NumVersionsToKeep = 1
	b.DetectConflicts = false // one writer
	b.MetricsEnabled = false
	return b
}
