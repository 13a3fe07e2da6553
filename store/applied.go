package store

import (
	"encoding/binary"
	"fmt"
)

// appliedPrefix is the first byte of the keys of Applied records: prefix | tablet id.
const appliedPrefix = 'a'

// A new tablet's log begins after (InitialIndex, InitialTerm), so that a replica that lacks them needs a snapshot.
const (
	InitialIndex = 10
	InitialTerm  = 5
)

// Applied says how far a tablet's Raft log is applied. It is written in the Txn of the effects (design section 3), with
// every apply; what changes rarely is in the tablet's state.
type Applied struct {
	Index uint64 // last applied Raft index
	Term  uint64 // its term
	Epoch uint64 // of the tablet's descriptor as of Index
	Bytes uint64 // about what the tablet's rows take, in keys and values: the same on every replica
	Rough bool   // Bytes is a guess: of a side of a split, or of a store from before it was counted
}

// Of the lengths of Applied records, the shorter one is from before bytes were counted.
const (
	appliedLen    = 1 + 5*8
	appliedLenOld = 1 + 3*8
)

func appendAppliedKey(dst []byte, tablet uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, appliedPrefix), tablet)
}

// PutApplied sets the tablet's Applied record.
func (b *Batch) PutApplied(tablet uint64, a Applied) {
	const size = 1 + 8 + appliedLen
	key := appendAppliedKey(b.room(size), tablet)
	all := key
	all = append(all, plainTag)
	rough := uint64(0)
	if a.Rough {
		rough = 1
	}
	for _, n := range [...]uint64{a.Index, a.Term, a.Epoch, a.Bytes, rough} {
		all = binary.BigEndian.AppendUint64(all, n)
	}
	b.keep(all)
	b.Put(all[:len(key):len(key)], all[len(key):])
}

// Applied reads the tablet's Applied record.
func (s *Snap) Applied(tablet uint64) (a Applied, ok bool, err error) {
	s.key = appendAppliedKey(s.key[:0], tablet)
	ok, err = s.read(s.key, func(b []byte) error {
		if len(b) != appliedLen && len(b) != appliedLenOld || b[0] != plainTag {
			return fmt.Errorf("%w: applied record of %d bytes", ErrBadValue, len(b))
		}
		a = Applied{Index: binary.BigEndian.Uint64(b[1:]), Term: binary.BigEndian.Uint64(b[9:]), Epoch: binary.BigEndian.Uint64(b[17:])}
		if a.Rough = true; len(b) == appliedLen {
			a.Bytes, a.Rough = binary.BigEndian.Uint64(b[25:]), binary.BigEndian.Uint64(b[33:]) != 0
		}
		return nil
	})
	return a, ok, err
}
