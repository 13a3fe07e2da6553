package store

import "math/bits"

// Sizes are what a store's memory depends on, in bytes. Badger holds up to five
// memtables, each with a third on top, and, while it compacts, the tables that it writes:
// two compactions of up to five parts, each with a table in the making and all of them
// with eight that are on their way to the disk. A table in the making takes up to six
// times its size: an arena of twice that, and another of twice the first if values of
// several kilobytes leave gaps in it.
type Sizes struct {
	MemTable int64 // of a memtable
	Table    int64 // of a table below level 0
	// Grow: tables are twice as large in each level further down. Fewer files, but what a
	// compaction takes grows with the store.
	Grow bool
}

const (
	// unbounded is the memory from which on sizes are those that cost least.
	unbounded = 8 << 30

	leastMemTable = 4 << 20
	memTablePart  = 64
	leastTable    = 1 << 20
	mostTable     = 8 << 20
	tablePart     = 512
)

// SizesFor returns the sizes for a process that may take so many bytes; 0: as many as it likes.
func SizesFor(memory uint64) Sizes {
	if memory == 0 || memory >= unbounded {
		return Sizes{MemTable: DefaultMemTableSize, Table: mostTable, Grow: true}
	}
	part := func(of, least, most int64) int64 {
		n := int64(1) << (bits.Len64(memory/uint64(of)|1) - 1) // a power of two
		return min(max(n, least), most)
	}
	return Sizes{
		MemTable: part(memTablePart, leastMemTable, DefaultMemTableSize),
		Table:    part(tablePart, leastTable, mostTable),
	}
}
