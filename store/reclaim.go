package store

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// Badger frees space only by compaction, and compacts by the bytes written, not by those deleted: a
// tombstone is a few bytes, hides a value of any size, and moves down to it only as other writes
// push it. While the store is written to that is soon enough. The space left when writes end is
// reclaimed here, on a goroutine of its own (docs/adr/0005).

// spaceInterval is the interval at which watch checks the free space, the tables and the log.
const spaceInterval = time.Second

// Reclaim compacts only if the dead bytes reach deadMemtables memtables and one part in
// deadShare of the tables' bytes; less than a memtable was written since the last pass,
// because Badger's own compactors are stopped during a compaction; the tables are no larger than
// compactLimit, which is rewritten within a minute or two, because Close waits for it; and the
// new tables fit on the disk next to the old ones.
const (
	deadShare     = 3
	deadMemtables = 16
	compactLimit  = 8 << 30
)

// watch checks the free space, the tables and the log until the store closes. It has its own
// goroutine, so that compactions do not delay it.
func (s *Store) watch() {
	look := time.NewTicker(spaceInterval)
	defer look.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-look.C:
			s.space.Look()
			_ = s.checkReplaced() // logs the damage and fails the writer
			s.maintainLog()
		case <-s.badger.compacted:
			_ = s.checkReplaced()
		}
	}
}

// work calls Reclaim every Options.ReclaimInterval until the store closes. A store in memory
// needs no Reclaim.
func (s *Store) work() {
	if s.opts.ReclaimInterval <= 0 || s.opts.InMemory {
		return
	}
	collect := time.NewTicker(s.opts.ReclaimInterval)
	defer collect.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-collect.C:
			s.Reclaim()
		}
	}
}

// checkReplaced verifies the tables that compactions have replaced. Damage makes the store fail. It
// returns earlier damage too: a call that has verified tables releases them, so that a concurrent
// call cannot find their damage again.
func (s *Store) checkReplaced() error {
	s.replaced.Lock()
	defer s.replaced.Unlock()
	if err := s.Damaged(); err != nil {
		return err
	}
	return s.markDamaged(s.state.checkReplaced())
}

// Reclaim passes Badger the sequence number below which no open Snap reads. If much has become dead
// and the store is quiet, it compacts. There is no value log to collect (chunk.go). work calls it,
// so that the end of a long Snap takes effect without writes. It is safe for concurrent use;
// Reclaim and Compact exclude each other.
func (s *Store) Reclaim() {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if s.closed.Load() {
		return
	}
	_ = s.checkReplaced() // logs the damage and fails the writer
	s.state.discard()
	if s.shouldCompact() {
		if err := s.compact(); err != nil {
			s.opts.Logger.Warn("store: compaction failed", "error", err)
		}
	}
}

// Compact frees the space of everything dead, at the cost of rewriting all tables. What open Snaps
// can see stays, and so do up to a few memtables of dead data in level 0 while no other level has
// tables: Badger merges level 0 with lower levels, or at its limit of tables.
func (s *Store) Compact() error {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if s.closed.Load() {
		return ErrClosed
	}
	s.state.discard()
	return s.compact()
}

func (d *database) discard() {
	if seq, ok := d.seq.advanceDiscard(); ok {
		d.db.SetDiscardTs(seq)
	}
}

// shouldCompact decides whether Reclaim compacts.
func (s *Store) shouldCompact() bool {
	d := s.state
	written := d.count.bytes.Load()
	quiet := int64(written-d.looked) < s.opts.MemTableSize
	d.looked = written
	dead, size := d.dead.Load(), d.tableBytes()
	if !quiet || dead < deadMemtables*s.opts.MemTableSize || dead < size/deadShare ||
		size > compactLimit {
		return false
	}
	// The new tables are written before the old ones are deleted, and a full disk is a SIGBUS.
	free, err := s.space.FreeBytes()
	return err == nil && free > s.opts.MinFreeBytes+uint64(size) && s.roomToCompact() == nil
}

// roomToCompact returns a *space.ShortError unless all tables can be rewritten while the present ones
// still exist.
func (s *Store) roomToCompact() error {
	return s.space.RoomForTables(uint64(len(s.state.db.Tables())))
}

// tableBytes returns the size of all of Badger's tables.
func (d *database) tableBytes() (n int64) {
	for _, l := range d.db.Levels() {
		n += l.Size
	}
	return n
}

// compact flushes the memtable, for its tombstones, and merges all tables into one level.
func (s *Store) compact() error {
	d := s.state
	if err := s.roomToCompact(); err != nil {
		return err
	}
	dead := d.dead.Load()
	if !s.opts.InMemory {
		began, err := s.padMemtable()
		if err == nil {
			err = s.awaitFlush(began)
		}
		if err != nil {
			return err
		}
	}
	d.discard()
	if err := s.markDamaged(d.verifyTables(nil)); err != nil {
		return err
	}
	if err := s.gate.UnlessStuck(func() error { return d.db.Flatten(1) }); err != nil {
		return fmt.Errorf("store: compact: %w", err)
	}
	if err := s.checkReplaced(); err != nil {
		return err
	}
	d.dead.Add(-dead)
	return nil
}

// The keys that pad memtables are below and above all others. A table with both overlaps
// every other table, so that compacting it rewrites them all.
const (
	padLow  = 0x00
	padHigh = 0xff
)

// padMemtable fills the active memtable with padding, which is the only way to make an open
// Badger flush it. The padding has only two keys, so a compaction leaves one chunk of it. It
// returns the sequence number before that of the first padding, for awaitFlush.
func (s *Store) padMemtable() (began uint64, err error) {
	d := s.state
	pad := &Batch{}
	pad.Put([]byte{padLow}, nil)
	pad.Put([]byte{padHigh}, bytes.Repeat([]byte{0}, chunkBytes))
	began = d.seq.current()
	// The first padding goes into a new memtable if the active one is full.
	if err := d.writer.Commit([]*Batch{pad}); err != nil {
		return 0, err
	}
	before, err := memTableFiles(d.db.Opts().Dir)
	if err != nil {
		return 0, err
	}
	for left, next := 2*s.opts.MemTableSize, false; left > 0 && !next; left -= chunkBytes {
		if err := d.writer.Commit([]*Batch{pad}); err != nil {
			return 0, err
		}
		now, err := memTableFiles(d.db.Opts().Dir)
		if err != nil {
			return 0, err
		}
		next = slices.ContainsFunc(now, func(name string) bool {
			return !slices.Contains(before, name)
		})
	}
	return began, nil
}

// awaitFlush waits until everything committed up to sequence number began, which padMemtable
// returned, is in tables. Afterwards the tables are held at a later number, so that a
// compaction drops everything deleted up to began, and all padding but the newest.
func (s *Store) awaitFlush(began uint64) error {
	const look = 10 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		flushed := s.state.padded(began)
		// An older hold keeps all younger versions, and may be what keeps the memtable.
		if err := s.checkReplaced(); err != nil || flushed {
			return err
		}
		select {
		case <-s.stop:
			return ErrClosed
		case <-tick.C:
		}
	}
}

// padded reports whether a table has padding with a number above seq. Then everything that
// was committed up to seq is in tables.
func (d *database) padded(seq uint64) bool {
	return slices.ContainsFunc(d.db.Tables(), func(t badger.TableInfo) bool {
		return bytes.Equal(y.ParseKey(t.Left), []byte{padLow}) && y.ParseTs(t.Left) > seq
	})
}

// deadBy estimates the bytes in Badger's tables that an operation turns into garbage. The sum only
// decides when a compaction is worth its cost.
func deadBy(txn *badger.Txn, o *op) int64 {
	size := int64(len(o.key) + len(o.value) + entryOverhead)
	if !o.del {
		switch o.key[0] {
		case 'L', 'H', appliedPrefix, tabletPrefix, stagedPrefix:
			return size // deleted or replaced soon; in H the copy of a W just replaced
		}
		return 0
	}
	if o.key[0] != 'D' && o.key[0] != 'M' {
		return size
	}
	item, err := txn.Get(o.key)
	if err != nil {
		return size
	}
	return size + item.EstimatedSize() // of a long value only the head is counted
}
