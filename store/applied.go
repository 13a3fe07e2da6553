package store

import (
	"encoding/binary"
	"fmt"
)

// appliedPrefix is the first byte of the keys of Applied records: prefix | tablet id.
const appliedPrefix = 'a'

// A new tablet's log begins after (InitialIndex, InitialTerm), so that an empty replica needs
// a snapshot.
const (
	InitialIndex = 10
	InitialTerm  = 5
)

// Applied records the position up to which a tablet's Raft log is applied. Every apply writes
// it with the effects (design section 3). The tablet's state holds what changes rarely.
type Applied struct {
	Index uint64 // index of the last applied Raft entry
	Term  uint64 // term of that entry
	Epoch uint64 // epoch of the tablet's descriptor as of Index
	Bytes uint64 // approximate size of the tablet's keys and values; the same on every replica
	Rough bool   // Bytes is an estimate, such as after a split
}

const appliedLen = 1 + 5*8

// PutApplied sets the tablet's Applied record.
func (b *Batch) PutApplied(tablet uint64, a Applied) {
	const key = ownKeyBytes
	all := a.append(appendOwnKey(make([]byte, 0, key+appliedLen), appliedPrefix, tablet))
	b.Put(all[:key:key], all[key:])
	b.tablets = append(b.tablets, tabletChange{kind: newApplied, tablet: tablet, applied: a})
}

// append appends the encoded record to b.
func (a Applied) append(b []byte) []byte {
	rough := uint64(0)
	if a.Rough {
		rough = 1
	}
	b = append(b, plainTag)
	for _, n := range [...]uint64{a.Index, a.Term, a.Epoch, a.Bytes, rough} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func decodeApplied(b []byte) (a Applied, err error) {
	if len(b) != appliedLen || b[0] != plainTag {
		return a, fmt.Errorf("%w: applied record of %d bytes", ErrBadValue, len(b))
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	return Applied{Index: n(0), Term: n(1), Epoch: n(2), Bytes: n(3), Rough: n(4) != 0}, nil
}

// Applied reads the tablet's Applied record.
func (s *Snap) Applied(tablet uint64) (Applied, bool, error) {
	return lookup(s, s.ownKey(appliedPrefix, tablet), decodeApplied)
}
