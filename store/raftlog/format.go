package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A log is a sequence of segments, files of their own. A segment is a header and frames,
// one after the other, each at a multiple of alignment; numbers are little-endian, CRCs
// are Castagnoli's.
//
//	header  magic (8 bytes), log id (16), sequence (8), end of the segment before (8), CRC of these
//	frame   payload's length (4), number in its segment (4), payload's CRC (4), head's CRC (4),
//	        payload
//
// A frame's CRCs begin with one over the log's id and the segment's sequence, and the
// head's goes over the frame's offset as well. So what an earlier use of the same file
// has left behind, a frame of another log, or one at another place is none of this
// segment's. Appends go to a new segment after every Open: what the last process wrote
// but never synced cannot show up behind what this one writes.
//
// A payload is a sequence of items (item.go), and takes effect as a whole. The first
// frame of a segment holds the state of all replicas, so that no older segment is needed
// for that.
const (
	magic       = "PCRAFTL1"
	idBytes     = 16
	headerBytes = int64(len(magic) + idBytes + 8 + 8 + 8)
	frameHead   = 16
	alignment   = 8
)

// MaxBatchBytes limits the size of a batch: its entries' data and some bytes for each.
const MaxBatchBytes = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logID tells logs apart. It is random.
type logID [idBytes]byte

// header is a segment's.
type header struct {
	id       logID
	sequence uint64
	before   int64 // where the segment before ends; everything up to there was synced
}

func (h header) encode() []byte {
	b := append(make([]byte, 0, headerBytes), magic...)
	b = append(b, h.id[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.sequence)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.before))
	return binary.LittleEndian.AppendUint64(b, uint64(crc32.Checksum(b, castagnoli)))
}

var errHeader = errors.New("no valid header")

func decodeHeader(b []byte) (h header, err error) {
	at := headerBytes - 8
	if int64(len(b)) < headerBytes ||
		binary.LittleEndian.Uint64(b[at:]) != uint64(crc32.Checksum(b[:at], castagnoli)) {
		return h, errHeader
	}
	if string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("%w: its format is %q, this program's %q", ErrForeign, b[:len(magic)],
			magic)
	}
	b = b[len(magic):]
	copy(h.id[:], b)
	h.sequence = binary.LittleEndian.Uint64(b[idBytes:])
	h.before = int64(binary.LittleEndian.Uint64(b[idBytes+8:]))
	return h, nil
}

// seed returns the value with which the CRCs of the segment's frames begin.
func (h header) seed() uint32 {
	var sequence [8]byte
	binary.LittleEndian.PutUint64(sequence[:], h.sequence)
	return crc32.Update(crc32.Checksum(h.id[:], castagnoli), castagnoli, sequence[:])
}

// frame is the decoded head of a frame.
type frame struct {
	length, number, sum uint32
}

// span returns how many bytes the frame takes in the segment.
func (f frame) span() int64 { return align(frameHead + int64(f.length)) }

func align(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// sealFrame completes a frame whose payload is in b behind room for the head, and pads it.
func sealFrame(b []byte, seed, number uint32, offset int64) []byte {
	payload := b[frameHead:]
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint32(b[8:], crc32.Update(seed, castagnoli, payload))
	binary.LittleEndian.PutUint32(b[12:], headSum(b, seed, offset))
	return append(b, make([]byte, align(int64(len(b)))-int64(len(b)))...)
}

func headSum(b []byte, seed uint32, offset int64) uint32 {
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], uint64(offset))
	return crc32.Update(crc32.Update(seed, castagnoli, place[:]), castagnoli, b[:12])
}

// decodeFrame decodes the head of a frame at an offset. ok is false if there is no frame of
// this segment.
func decodeFrame(b []byte, seed uint32, offset int64) (f frame, ok bool) {
	if len(b) < frameHead {
		return f, false
	}
	f.length = binary.LittleEndian.Uint32(b)
	f.number = binary.LittleEndian.Uint32(b[4:])
	f.sum = binary.LittleEndian.Uint32(b[8:])
	return f, binary.LittleEndian.Uint32(b[12:]) == headSum(b, seed, offset)
}

// whole reports whether b is the payload that the head was made for.
func (f frame) whole(b []byte, seed uint32) bool {
	return crc32.Update(seed, castagnoli, b) == f.sum
}
