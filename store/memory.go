package store

import "math/bits"

// Sizes determine a store's memory, in bytes. Badger holds up to five memtables, each 30 % larger
// than its size, and while it compacts also the tables that it writes: each of two compactions
// builds one table in each of up to five parts, and writes up to eight more to the disk. A table
// that is being built uses up to six times its size: an arena of twice its size, and another
// twice as large as the first if values of several kilobytes leave gaps in it.
type Sizes struct {
	MemTable int64 // size of a memtable
	Table    int64 // size of a table below level 0
	// HotCells is the number of cells whose newest entries are kept, in 512 bytes each.
	HotCells int
	// Grow doubles the size of tables from level to level. There are fewer files, but a
	// compaction takes more memory as the store grows.
	Grow bool
}

const (
	// ampleMemory is the memory from which on the sizes that cost least are used.
	ampleMemory = 8 << 30

	leastMemTable = 4 << 20
	memTablePart  = 64
	leastTable    = 1 << 20
	mostTable     = 8 << 20
	tablePart     = 512

	leastHotCells = 1 << 12
	mostHotCells  = 1 << 16
	hotCellsPart  = 64
)

// SizesFor returns the sizes for a process that may use memory bytes. Zero means no limit.
func SizesFor(memory uint64) Sizes {
	if memory == 0 || memory >= ampleMemory {
		return Sizes{MemTable: DefaultMemTableSize, Table: mostTable, HotCells: mostHotCells, Grow: true}
	}
	part := func(of, least, most int64) int64 {
		n := int64(1) << (bits.Len64(memory/uint64(of)|1) - 1) // a power of two
		return min(max(n, least), most)
	}
	return Sizes{
		MemTable: part(memTablePart, leastMemTable, DefaultMemTableSize),
		Table:    part(tablePart, leastTable, mostTable),
		HotCells: int(part(hotCellsPart*slotBytes, leastHotCells, mostHotCells)),
	}
}
