package store

import (
	"bytes"
	"hash/maphash"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// hotCells keeps the newest entries of cells that were read or written lately, as they
// are stored: a lookup in Badger asks every memtable and every level, because a version
// of its own stands in each, and a cell that is worked on is looked up three times for
// one read and write. It is a table of fixed size without chains: a key has one slot, and
// the last key that came keeps it. An entry is only ever taken by Snaps that would find
// the same in Badger:
//
//   - The writer brings every slot up to date, in the order of sequence numbers, before it makes the number visible. So what
//     a slot says of its key at number seq is true at every later number too, until the slot says otherwise.
//   - A Snap takes an entry if it reads at seq or later, and goes to Badger if not.
//   - What a Snap has found in Badger is kept only if nothing of the slot has been written since the number that it reads at.
type hotCells struct {
	seed  maphash.Seed
	slots []hotSlot
}

// hotSlot is one key's entry.
type hotSlot struct {
	mu      sync.Mutex
	written uint64 // the number of the last write to any key of this slot
	seq     uint64 // from this number on the entry is what the key holds
	keyLen  int    // 0: the slot is empty
	missing bool   // the key holds nothing
	data    []byte // key, then value
}

// Bounds of the memory that hotCells take: the slots, and at most so many bytes of keys
// and values in each.
const (
	hotSlots   = 1 << 15
	maxHotSize = 512
)

func newHotCells(slots int) *hotCells {
	return &hotCells{seed: maphash.MakeSeed(), slots: make([]hotSlot, slots)}
}

// isHot reports whether the group is kept: where the one key of a cell is written again
// and again. So is what a tablet has applied, which every batch of reads looks up.
func isHot(key []byte) bool {
	return len(key) > 0 && (key[0] == byte(mvcc.GroupWrite) || key[0] == byte(mvcc.GroupRaw) ||
		key[0] == appliedPrefix)
}

func (h *hotCells) slot(key []byte) *hotSlot {
	return &h.slots[maphash.Bytes(h.seed, key)%uint64(len(h.slots))]
}

// lookup passes the value that the key has at the number to fn, which must copy what it
// keeps. It reports whether the slot knows, and if so, whether there is a value.
func (h *hotCells) lookup(key []byte, at uint64,
	fn func(value []byte) error) (known, ok bool, err error) {
	s := h.slot(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.keyLen == 0 || s.seq > at || !bytes.Equal(s.data[:s.keyLen], key):
		return false, false, nil
	case s.missing:
		return true, false, nil
	}
	return true, true, fn(s.data[s.keyLen:])
}

// found keeps what a Snap that reads at the number has found, which is there from seq on.
func (h *hotCells) found(key, value []byte, missing bool, seq, at uint64) {
	s := h.slot(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written <= at {
		s.set(key, value, missing, seq)
	}
}

// wrote takes note of a write at the number. Only the writer calls it, before the number
// is visible.
func (h *hotCells) wrote(o *op, seq uint64) {
	s := h.slot(o.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = seq
	if chunksOf(len(o.value)) > 1 { // Badger's entry is only its head
		s.keyLen = 0
		return
	}
	s.set(o.key, o.value, o.del, seq)
}

func (s *hotSlot) set(key, value []byte, missing bool, seq uint64) {
	if len(key)+len(value) > maxHotSize {
		s.keyLen = 0
		return
	}
	s.data = append(append(s.data[:0], key...), value...)
	s.keyLen, s.missing, s.seq = len(key), missing, seq
}
