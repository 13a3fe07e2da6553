package raftlog

// Encoding of the items of frames. Pure functions: Log.write and Log.begin encode items; replay
// and reads from disk decode them.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
)

// Kinds of items.
const (
	itemState      = 1 + iota // the head of a replica at the beginning of a segment
	itemNote                  // a note; an empty one deletes it
	itemBegin                 // the log begins after a position
	itemEntry                 // an entry, which replaces all from its index on
	itemMoved                 // a live entry that Rewrite wrote again
	itemHard                  // a HardState
	itemTruncate              // the entries up to a position are removed
	itemCheckpoint            // the state is durable up to an index
	itemDestroy               // the replica is removed
)

// Position is a position in a Raft log.
type Position struct{ Index, Term uint64 }

// item is one change to one replica or note. Which fields are used depends on the kind.
type item struct {
	kind    byte
	replica uint64
	at      Position // of the entry, begin, truncation or checkpoint
	head    head     // itemState: all of it; itemHard: the HardState
	entry   *raftpb.Entry
	key     string // of an itemNote
	note    []byte // itemNote; the figures of itemBegin and itemCheckpoint
	offset  uint32 // of an entry's item, from the beginning of the payload
	length  uint32
}

const itemSumBytes = 4

// append appends the encoded item to b, which contains the frame from its start. An entry has its
// own CRC, so that it can be read without the rest of its frame.
func (it *item) append(b []byte) []byte {
	begin := len(b)
	b = append(b, it.kind)
	b = binary.AppendUvarint(b, it.replica)
	switch it.kind {
	case itemState:
		hard := it.head.hard
		b = hard.append(b)
		b = it.head.truncated.append(b)
		b = binary.AppendUvarint(b, it.head.checkpoint)
		b = binary.AppendUvarint(b, it.head.last)
		b = appendBytes(b, it.head.figures)
	case itemNote:
		b = appendBytes(appendBytes(b, it.key), it.note)
	case itemEntry, itemMoved:
		b = it.at.append(b)
		b = append(b, byte(it.entry.GetType()))
		b = binary.AppendUvarint(b, uint64(len(it.entry.Data)))
		b = append(b, it.entry.Data...)
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
		it.offset, it.length = uint32(begin-frameHead), uint32(len(b)-begin)
	case itemHard:
		b = it.head.hard.append(b)
	case itemTruncate:
		b = it.at.append(b)
	case itemBegin, itemCheckpoint:
		b = it.at.append(b)
		b = appendBytes(b, it.note)
	}
	return b
}

func appendBytes[T []byte | string](b []byte, data T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// size returns an upper bound of the bytes that append adds for an item of a Batch.
func (it *item) size() int64 {
	const fixed = 1 + 8*binary.MaxVarintLen64 + itemSumBytes
	if it.entry != nil {
		return fixed + int64(len(it.entry.Data))
	}
	return fixed + int64(len(it.key)+len(it.note))
}

func (p Position) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, p.Index), p.Term)
}

func (h hardState) append(b []byte) []byte {
	b = binary.AppendUvarint(b, h.term)
	b = binary.AppendUvarint(b, h.vote)
	return binary.AppendUvarint(b, h.commit)
}

var (
	errItem = errors.New("undecodable item")
	errSum  = errors.New("entry with a wrong checksum")
)

// decodeItem reads the first item of b, whose data it does not copy, and returns its
// length.
func decodeItem(b []byte) (it item, n int, err error) {
	r := reader{b: b}
	it.kind = r.byte()
	it.replica = r.uvarint()
	switch it.kind {
	case itemState:
		it.head.hard = r.hardState()
		it.head.truncated = r.position()
		it.head.checkpoint = r.uvarint()
		it.head.last = r.uvarint()
		it.head.figures = string(r.bytes(r.uvarint()))
	case itemNote:
		it.key = string(r.bytes(r.uvarint()))
		it.note = r.bytes(r.uvarint())
	case itemEntry, itemMoved:
		it.at = r.position()
		typ := raftpb.EntryType(r.byte())
		data := r.bytes(r.uvarint())
		sum := crc32.Checksum(b[:r.at], castagnoli)
		if stored := r.bytes(itemSumBytes); !r.bad && binary.LittleEndian.Uint32(stored) != sum {
			return it, 0, errSum
		}
		it.entry = &raftpb.Entry{Term: &it.at.Term, Index: &it.at.Index, Type: &typ, Data: data}
	case itemHard:
		it.head.hard = r.hardState()
	case itemTruncate:
		it.at = r.position()
	case itemBegin, itemCheckpoint:
		it.at = r.position()
		it.note = r.bytes(r.uvarint())
	case itemDestroy:
	default:
		r.bad = true
	}
	if r.bad {
		return it, 0, errItem
	}
	it.length = uint32(r.at)
	return it, r.at, nil
}

// reader decodes the output of append. Once bad is set it returns only zero values.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) byte() byte {
	b := r.bytes(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)-r.at) {
		r.bad = true
		return nil
	}
	b := r.b[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b[r.at:])
	if r.bad || n <= 0 {
		r.bad = true
		return 0
	}
	r.at += n
	return v
}

func (r *reader) position() Position { return Position{Index: r.uvarint(), Term: r.uvarint()} }

func (r *reader) hardState() hardState {
	return hardState{term: r.uvarint(), vote: r.uvarint(), commit: r.uvarint()}
}

// cloneEntry returns a copy of the entry.
func (it *item) cloneEntry() *raftpb.Entry {
	at, typ := it.at, it.entry.GetType()
	e := &raftpb.Entry{Term: &at.Term, Index: &at.Index, Type: &typ}
	if len(it.entry.Data) > 0 { // raft distinguishes nil from empty
		e.Data = bytes.Clone(it.entry.Data)
	}
	return e
}
