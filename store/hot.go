package store

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

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
	seed   maphash.Seed
	blocks []atomic.Pointer[hotBlock] // a block is nil until one of its slots is used
}

// hotBlock is the unit of allocation: a small store needs only some. It has no pointers, so that the garbage
// collector does not scan it.
type hotBlock [blockSlots]hotSlot

// hotSlot is one key's entry.
type hotSlot struct {
	mu      sync.Mutex
	written uint64           // sequence number of the last write to any key of this slot
	seq     uint64           // the key has this value from this sequence number on
	keyLen  uint16           // 0 if the slot is empty
	dataLen uint16           // length of key and value together
	missing bool             // the key does not exist
	data    [maxHotSize]byte // key, then value
}

const (
	blockSlots = 16
	slotBytes  = 512
	maxHotSize = slotBytes - 32 // of a key and its value
)

// newHotCells returns an empty cache of at least this many slots.
func newHotCells(slots int) *hotCells {
	return &hotCells{
		seed: maphash.MakeSeed(), blocks: make([]atomic.Pointer[hotBlock], (slots+blockSlots-1)/blockSlots),
	}
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

// slot returns the key's slot. Without create it may be nil: the slot is empty and nothing was written to it.
func (h *hotCells) slot(key []byte, create bool) *hotSlot {
	n := maphash.Bytes(h.seed, key)
	at := &h.blocks[n/blockSlots%uint64(len(h.blocks))]
	block := at.Load()
	if block == nil {
		if !create {
			return nil
		}
		if block = new(hotBlock); !at.CompareAndSwap(nil, block) {
			block = at.Load()
		}
	}
	return &block[n%blockSlots]
}

// lookup passes the key's value at sequence number at to fn, which must copy what it keeps. It
// reports whether the slot has an entry for the key, and if so, whether the key exists.
func (h *hotCells) lookup(key []byte, at uint64,
	fn func(value []byte) error) (known, ok bool, err error) {
	s := h.slot(key, false)
	if s == nil {
		return false, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.keyLen == 0 || s.seq > at || !bytes.Equal(s.data[:s.keyLen], key):
		return false, false, nil
	case s.missing:
		return true, false, nil
	}
	return true, true, fn(s.data[s.keyLen:s.dataLen])
}

// found stores a value found by a Snap that reads at sequence number at, valid from seq on, unless
// a key of the slot has been written after at.
func (h *hotCells) found(key, value []byte, missing bool, seq, at uint64) {
	s := h.slot(key, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written <= at {
		s.set(key, value, missing, seq)
	}
}

// wrote records a write at sequence number seq. Only the Writer calls it, before seq is visible.
func (h *hotCells) wrote(o *op, seq uint64) {
	s := h.slot(o.key, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = seq
	if chunksOf(len(o.value)) > 1 { // a long value is not cached: its entry is only the head
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
	n := copy(s.data[:], key)
	s.keyLen, s.dataLen = uint16(n), uint16(n+copy(s.data[n:], value))
	s.missing, s.seq = missing, seq
}
