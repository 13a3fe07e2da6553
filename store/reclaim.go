package store

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// Badger gives space back by compaction only, and compacts what is written, not what is
// deleted: a tombstone is some bytes, hides a value of any size, and moves down to it
// only as other writes push it. While the store is written to that is soon enough. What
// is left when the writes end is taken back here: see docs/adr/0005.

// spaceInterval is how often watch looks at the free space and at the log.
const spaceInterval = time.Second

// When Reclaim compacts: there are at least so many dead bytes, and as many as a part of
// the tables; less than a memtable was written since the last pass, for Badger's own
// compactors stand still meanwhile; and the tables are no more than what is rewritten
// within a minute or two, for Close waits for it.
const (
	deadShare     = 3
	deadMemtables = 16
	compactLimit  = 8 << 30
)

// watch looks at the free space and at the log until the store closes. It is not held up
// by compactions.
func (s *Store) watch() {
	look := time.NewTicker(spaceInterval)
	defer look.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-look.C:
			s.look()
			_ = s.checkReplaced() // which logs it, and fails the writer
			s.lookAtLog()
		}
	}
}

// work gives space back until the store closes.
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

// checkReplaced verifies the tables that compactions have replaced. A damaged one ends the
// store.
func (s *Store) checkReplaced() error { return s.condemn(s.state.checkReplaced()) }

// Reclaim tells Badger what no open Snap can see any more, and, if that is much and the
// store has nothing else to do, has it compacted. There is no value log to collect
// (chunk.go). The background worker calls it, so that the end of a long Snap is noticed
// without writes; others may. One of Reclaim and Compact goes on at a time.
func (s *Store) Reclaim() {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if s.closed.Load() {
		return
	}
	_ = s.checkReplaced() // which logs it, and fails the writer
	s.state.discard()
	if s.worthwhile() {
		if err := s.compact(); err != nil {
			s.opts.Logger.Warn("store: compaction", "error", err)
		}
	}
}

// Compact gives back what is dead now, whatever it costs: it rewrites all tables. What
// open Snaps see stays.
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

// worthwhile decides whether Reclaim compacts.
func (s *Store) worthwhile() bool {
	d := s.state
	written := d.count.bytes.Load()
	quiet := int64(written-d.looked) < s.opts.MemTableSize
	d.looked = written
	dead, size := d.dead.Load(), d.tableBytes()
	if !quiet || dead < deadMemtables*s.opts.MemTableSize || dead < size/deadShare ||
		size > compactLimit {
		return false
	}
	// The new tables are written before the old ones go, and a full disk is a SIGBUS.
	free, err := s.FreeBytes()
	return err == nil && free > s.opts.MinFreeBytes+uint64(size)
}

// tableBytes is the size of all tables.
func (d *database) tableBytes() (n int64) {
	for _, l := range d.db.Levels() {
		n += l.Size
	}
	return n
}

// compact brings the memtable's tombstones into a table, and all tables into one level.
func (s *Store) compact() error {
	d := s.state
	dead := d.dead.Load()
	if !s.opts.InMemory {
		if err := s.flushMemtable(); err != nil {
			return err
		}
	}
	d.discard()
	if err := s.condemn(d.verifyTables(nil)); err != nil {
		return err
	}
	if err := d.db.Flatten(1); err != nil {
		return fmt.Errorf("store: compact: %w", err)
	}
	if err := s.checkReplaced(); err != nil {
		return err
	}
	d.dead.Add(-dead)
	return nil
}

// The keys that pad memtables lie below and above all others: a table with both in it
// overlaps every other, so that compacting it rewrites them all.
const (
	padLow  = 0x00
	padHigh = 0xff
)

// flushMemtable fills the active memtable, so that Badger writes it out, which nothing
// else makes it do while it is open, and waits for that. Padding is the same two keys
// over and over: a compaction leaves one chunk of it.
func (s *Store) flushMemtable() error {
	d := s.state
	pad := &Batch{}
	pad.Put([]byte{padLow}, nil)
	pad.Put([]byte{padHigh}, bytes.Repeat([]byte{0}, chunkBytes))
	began := d.seq.current()
	before, err := memTableFiles(d.db.Opts().Dir)
	if err != nil {
		return err
	}
	for left, next := 2*s.opts.MemTableSize, false; left > 0 && !next; left -= chunkBytes {
		if err := d.writer.Commit([]*Batch{pad}); err != nil {
			return err
		}
		now, err := memTableFiles(d.db.Opts().Dir)
		if err != nil {
			return err
		}
		next = slices.ContainsFunc(now, func(name string) bool {
			return !slices.Contains(before, name)
		})
	}
	const look = 10 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !d.padded(began) {
		if err := s.checkReplaced(); err != nil { // else the memtable is held
			return err
		}
		select {
		case <-s.stop:
			return ErrClosed
		case <-tick.C:
		}
	}
	return nil
}

// padded reports whether there is a table with padding of a later number than seq: then
// so is all in tables that was committed up to there.
func (d *database) padded(seq uint64) bool {
	return slices.ContainsFunc(d.db.Tables(), func(t badger.TableInfo) bool {
		return bytes.Equal(y.ParseKey(t.Left), []byte{padLow}) && y.ParseTs(t.Left) > seq
	})
}

// deadBy estimates how many bytes of tables an operation makes superfluous, now or soon:
// it is only to tell when a compaction is worth its while.
func deadBy(txn *badger.Txn, o *op) int64 {
	size := int64(len(o.key) + len(o.value) + entryOverhead)
	if !o.del {
		switch o.key[0] {
		case 'L', 'H', appliedPrefix, tabletPrefix, stagedPrefix:
			return size // goes soon; or, of H, is the copy of a superseded W
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
	return size + item.EstimatedSize() // of a long value the first chunk
}
