package store

import (
	"bytes"
	"hash/maphash"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// hotCells caches the newest entries of recently read or written cells, as they are stored. A
// lookup in Badger has to search every memtable and every level, because each may have a
// version of the key, and one read and write of a cell looks it up three times. The cache
// is a table of fixed size without chains: each key has one slot, shared with others, and the
// last key stored keeps it. The Writer and any number of Snaps use it concurrently. A Snap gets
// only what it would find in Badger:
//
//   - The Writer updates the slots, in the order of sequence numbers, before it makes a number
//     visible. So a slot's entry at number seq is valid at every later number too, until the
//     slot changes.
//   - A Snap uses an entry only if it reads at seq or later. Otherwise it reads Badger.
//   - What a Snap has found in Badger is stored only if no key of the slot has been written since
//     the Snap's number.
type hotCells struct {
	seed  maphash.Seed
	slots []hotSlot
}

// hotSlot is one key's entry.
type hotSlot struct {
	mu      sync.Mutex
	written uint64 // number of the last write to any key of this slot
	seq     uint64 // the key has this value from this number on
	keyLen  int    // 0 if the slot is empty
	missing bool   // the key does not exist
	data    []byte // key, then value
}

// Bounds of the memory of hotCells: the number of slots, and the bytes of key and value in
// each.
const (
	hotSlots   = 1 << 15
	maxHotSize = 512
)

func newHotCells(slots int) *hotCells {
	return &hotCells{seed: maphash.MakeSeed(), slots: make([]hotSlot, slots)}
}

// isHot reports whether the key is cached: those of the groups in which a cell has one key that is
// overwritten repeatedly, notifications, which a run and its end look up soon after they are
// written, and the Applied records, which every batch of reads looks up.
func isHot(key []byte) bool {
	if len(key) == 0 {
		return false
	}
	switch key[0] {
	case byte(mvcc.GroupWrite), byte(mvcc.GroupRaw), byte(mvcc.GroupNotify), appliedPrefix:
		return true
	}
	return false
}

func (h *hotCells) slot(key []byte) *hotSlot {
	return &h.slots[maphash.Bytes(h.seed, key)%uint64(len(h.slots))]
}

// lookup passes the key's value at a number to fn, which must copy what it keeps. It reports
// whether the slot has an entry for the key, and if so, whether the key exists.
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

// found stores a value found by a Snap that reads at number at, valid from seq on, unless a key of
// the slot has been written after that number.
func (h *hotCells) found(key, value []byte, missing bool, seq, at uint64) {
	s := h.slot(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written <= at {
		s.set(key, value, missing, seq)
	}
}

// wrote records a write at number seq. Only the Writer calls it, before seq is visible.
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
