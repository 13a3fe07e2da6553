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
}

func appendAppliedKey(dst []byte, tablet uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, appliedPrefix), tablet)
}

// PutApplied sets the tablet's Applied record.
func (b *Batch) PutApplied(tablet uint64, a Applied) {
	const size = 1 + 8 + 1 + 3*8
	key := appendAppliedKey(b.room(size), tablet)
	all := key
	all = append(all, plainTag)
	for _, n := range [...]uint64{a.Index, a.Term, a.Epoch} {
		all = binary.BigEndian.AppendUint64(all, n)
	}
	b.keep(all)
	b.Put(all[:len(key):len(key)], all[len(key):])
}

// Applied reads the tablet's Applied record.
func (s *Snap) Applied(tablet uint64) (a Applied, ok bool, err error) {
	s.key = appendAppliedKey(s.key[:0], tablet)
	ok, err = s.read(s.key, func(b []byte) error {
		if len(b) != 1+3*8 || b[0] != plainTag {
			return fmt.Errorf("%w: applied record of %d bytes", ErrBadValue, len(b))
		}
		a = Applied{Index: binary.BigEndian.Uint64(b[1:]), Term: binary.BigEndian.Uint64(b[9:]), Epoch: binary.BigEndian.Uint64(b[17:])}
		return nil
	})
	return a, ok, err
}
