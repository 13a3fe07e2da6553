package store

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// Badger gives space back by compaction only, and compacts what is written, not what is deleted: a tombstone is some bytes,
// hides a value of any size, and moves down to it only as other writes push it. While the store is written to that is soon
// enough. What is left when the writes end is taken back here: see docs/adr/0005.

// spaceInterval is how often the free space is looked at while the store is awake (rest.go).
const spaceInterval = time.Second

// When Reclaim compacts: there are at least so many dead bytes, and as many as a part of the tables; less than a memtable
// was written since the last pass, for Badger's own compactors stand still meanwhile; and the tables are no
// more than what is rewritten within a minute or two, for Close waits for it.
const (
	deadShare     = 3
	deadMemtables = 16
	compactLimit  = 8 << 30
)

// work watches the free space, lets Badger rest, and gives space back, until the store closes. It is the store's only background
// goroutine besides Badger's own.
func (s *Store) work() {
	space := time.NewTicker(spaceInterval)
	defer space.Stop()
	var collect <-chan time.Time
	if s.opts.ReclaimInterval > 0 && !s.opts.InMemory {
		t := time.NewTicker(s.opts.ReclaimInterval)
		defer t.Stop()
		collect = t.C
	}
	for {
		select {
		case <-s.stop:
			return
		case <-collect:
			s.Reclaim()
			continue
		case <-s.wake:
		case <-space.C:
		}
		s.lookAtSpace()
		s.checkReplaced()
		if s.look() && !s.blocked.Load() { // else room is noticed soon
			space.Reset(restInterval)
		} else {
			space.Reset(spaceInterval)
		}
	}
}

// checkReplaced has the tables verified that compactions have replaced.
func (s *Store) checkReplaced() {
	for _, d := range s.databases() {
		_ = s.condemn(d.checkReplaced()) // which logs it, and fails the writers
	}
}

// Reclaim tells Badger what no open Snap can see any more, and, if that is much and the store has nothing else to do, has it
// compacted. There is no value log to collect (chunk.go). The background worker calls it, so that the end of a long Snap is
// noticed without writes; others may. One of Reclaim and Compact goes on at a time.
func (s *Store) Reclaim() {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if s.closed.Load() {
		return
	}
	s.checkReplaced()
	for _, d := range s.databases() {
		d.discard()
		if s.worthwhile(d) {
			if err := s.compact(d); err != nil {
				s.opts.Logger.Warn("store: compaction", "error", err)
			}
		}
	}
}

// Compact gives back what is dead now, whatever it costs: it rewrites all tables. What open Snaps see stays.
func (s *Store) Compact() error {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if s.closed.Load() {
		return ErrClosed
	}
	for _, d := range s.databases() {
		d.discard()
		if err := s.compact(d); err != nil {
			return err
		}
	}
	return nil
}

func (d *database) discard() {
	if seq, ok := d.seq.advanceDiscard(); ok {
		d.db.SetDiscardTs(seq)
	}
}

// worthwhile decides whether Reclaim compacts.
func (s *Store) worthwhile(d *database) bool {
	written := d.count.bytes.Load()
	quiet := int64(written-d.looked) < s.opts.MemTableSize
	d.looked = written
	dead, size := d.dead.Load(), d.tableBytes()
	if !quiet || dead < deadMemtables*s.opts.MemTableSize || dead < size/deadShare || size > compactLimit {
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
func (s *Store) compact(d *database) error {
	if s.closed.Load() {
		return ErrClosed
	}
	d.rouse() // Flatten starts the compactors again when it is done
	dead := d.dead.Load()
	if !s.opts.InMemory {
		if err := s.flushMemtable(d); err != nil {
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
	if err := s.condemn(d.checkReplaced()); err != nil {
		return err
	}
	d.dead.Add(-dead)
	return d.durable.shrink()
}

// The keys that pad memtables lie below and above all others: a table with both in it overlaps every other, so that compacting
// it rewrites them all.
const (
	padLow  = 0x00
	padHigh = 0xff
)

// flushMemtable fills the active memtable, so that Badger writes it out, which nothing else makes it do while it is open, and
// waits for that. Padding is the same two keys over and over: a compaction leaves one chunk of it.
func (s *Store) flushMemtable(d *database) error {
	d.writer.mu.Lock()
	fid := d.durable.fid
	d.writer.mu.Unlock()
	pad := &Batch{}
	pad.SetLazy()
	pad.Put([]byte{padLow}, nil)
	pad.Put([]byte{padHigh}, bytes.Repeat([]byte{0}, chunkBytes))
	for left := 2 * s.opts.MemTableSize; left > 0; left -= chunkBytes {
		if err := d.writer.Commit([]*Batch{pad}); err != nil {
			return err
		}
		d.writer.mu.Lock()
		flushing := d.durable.off || d.durable.fid > fid
		d.writer.mu.Unlock()
		if flushing {
			break
		}
	}
	return s.awaitFlush(d, fid)
}

// awaitFlush waits until the log file of a memtable is gone: its entries are in a table.
func (s *Store) awaitFlush(d *database, fid int) error {
	const look = 10 * time.Millisecond
	if d.durable.off {
		return nil // a store that never syncs does not know its log files
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := s.condemn(d.checkReplaced()); err != nil { // else the memtable is held
			return err
		}
		if _, err := os.Stat(logFileName(d.durable.dir, fid)); os.IsNotExist(err) {
			return nil
		}
		select {
		case <-s.stop:
			return ErrClosed
		case <-tick.C:
		}
	}
}

// deadBy estimates how many bytes of tables an operation makes superfluous, now or soon: it is only to tell when a compaction
// is worth its while.
func deadBy(txn transaction, o *op) int64 {
	size := int64(len(o.key) + len(o.value) + entryOverhead)
	if !o.del {
		switch o.key[0] {
		case logPrefix, 'L', 'H', appliedPrefix, tabletPrefix, stagedPrefix:
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
