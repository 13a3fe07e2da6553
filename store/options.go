package store

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// DiskFormat is the version of keys, values and directory layout that this package
// writes, kept in the VERSION file.
const DiskFormat = 2

// Defaults of Options, in bytes unless said otherwise.
const (
	// DefaultMemTableSize is what costs least: of every memtable the memory is new, and a
	// large one's is the kernel's to hand out and to take back (docs/adr/0015). What does
	// not fit into Badger's largest transaction, 15 % of it, goes in several.
	DefaultMemTableSize = 16 << 20
	// DefaultMinFreeBytes is room for all unflushed memtables and one compaction.
	DefaultMinFreeBytes = 512 << 20

	// minMemTableSize keeps a chunk below Badger's value threshold, which is 15 % of the
	// memtable at most.
	minMemTableSize = 2 << 20

	valueThreshold   = 1 << 20 // Badger's greatest; chunk.go keeps every value below it
	valueLogFileSize = 1 << 20 // Badger's least: the value log stays empty
	numMemtables     = 3
	numCompactors    = 2

	// What is dead is let go of when tables meet in a compaction: the sooner, the less of
	// it there is. Level 0 is compacted at as much as Commit's reserve of the disk holds
	// beside a memtable, so that there is room for it, and at the latest at eight tables,
	// which a lookup has to ask one by one: with the defaults at seven, 112 MiB. Writes
	// wait at three times that. A store below half a gigabyte has one level below.
	levelZeroLeast  = 2
	levelZeroMost   = 8
	levelZeroStalls = 3
	baseLevelSize   = 512 << 20

	// reserveDivisor: Commit itself refuses below MinFreeBytes/reserveDivisor. Between
	// the two, what finishes and cleans up may still write, as long as half of the
	// reserve again is free above it, which is for what is under way then.
	reserveDivisor = 4
)

// Options configure a Store. The zero value of every field but Dir is a sensible default.
type Options struct {
	// the store's own directory, made if missing; VERSION, LOCK and Badger's directory
	// live there
	Dir string
	// the Raft log's directory, made if missing, such as one on a device of its own; "":
	// inside of Dir
	LogDir   string
	InMemory bool // nothing on disk, Dir and LogDir must be empty. For tests.
	Logger   *slog.Logger

	// bytes that the process may use; the store's sizes follow from it (SizesFor). 0: no
	// limit
	Memory       uint64
	MemTableSize int64 // bytes; what follows from Memory, at least 2 MiB
	// bytes; DefaultMinFreeBytes. Below it WriteBlocked refuses; below a quarter of it,
	// Commit.
	MinFreeBytes uint64

	// between passes of Reclaim, and how long writes must pause before one compacts;
	// default 1 min, < 0: never
	ReclaimInterval time.Duration

	SyncDelay time.Duration // slept after each sync: benchmarks of slower disks
	NoSync    bool          // never sync. Loses acknowledged writes; for the tests of the tests.

	// in memory: Reopen opens it as after a crash, at the cost of versions since the last
	// checkpoint. For tests.
	Crashes bool

	FreeBytes func() (uint64, error) // free disk space, for tests; nil: what the file system says

	table      int64        // bytes, of a table below level 0
	growth     int          // of tables from level to level
	beforeTxn  func() error // of tests: called before every Txn, which fails with its error
	beforeSync func() error // of tests: called before every syncfs, which fails with its error
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	sizes := SizesFor(o.Memory)
	if o.table, o.growth = sizes.Table, 1; sizes.Grow {
		o.growth = 2
	}
	o.MemTableSize = max(cmp.Or(o.MemTableSize, sizes.MemTable), minMemTableSize)
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, DefaultMinFreeBytes)
	o.ReclaimInterval = cmp.Or(o.ReclaimInterval, time.Minute)
	return o
}

// levelZeroTables is the number of memtables in level 0 that are compacted together.
func (o Options) levelZeroTables() int {
	bytes := int64(min(o.MinFreeBytes/reserveDivisor, 1<<40)) - o.MemTableSize
	return int(min(max(bytes/o.MemTableSize, levelZeroLeast), levelZeroMost))
}

// badgerOptions says how one database is opened in dir. Memory: one memtable, up to
// numMemtables more while they wait to be flushed, each MemTableSize and 30 % on top,
// touched as they fill; what compactions write (memory.go); and the indices and bloom
// filters of all tables, about 1 % of the data. Tables and log files are mapped: the page
// cache's, not the process's.
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
	// blocks are read in place from mapped files, and the system's page cache is the
	// cache:
	b.Compression = options.None
	b.BlockCacheSize = 0 // a lookup costs a third less than with Snappy and a cache (docs/adr/0002)
	b.IndexCacheSize = 0 // all indices are in memory: a bloom filter must answer without disk
	b.NumVersionsToKeep = 1
	b.DetectConflicts = false // one writer
	b.MetricsEnabled = false
	return b
}
