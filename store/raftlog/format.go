package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Format of a log: a sequence of segments, each a file. A segment is a header followed by frames,
// each at a multiple of alignment; numbers are little-endian, CRCs are Castagnoli's.
//
//	header  magic (8 bytes), log id (16), sequence (8), end of the previous segment (8), CRC (8)
//	frame   payload's length (4), number in its segment (4), payload's CRC (4), head's CRC (4),
//	        payload
//
// A frame's CRCs are seeded with the log's id and the segment's sequence, and the head's CRC
// also covers the frame's offset. So data from an earlier use of the same file, a frame of
// another log, or one at another offset does not match. Appends go to a new segment after every
// Open, so that unsynced data of the last process cannot appear after the writes of this one.
//
// A payload is a sequence of items (item.go) that takes effect as a whole. The first frame of a
// segment contains the state of all replicas, so that older segments are needed only for their
// live entries.
const (
	magic       = "PCRAFTL1"
	idBytes     = 16
	headerBytes = int64(len(magic) + idBytes + 8 + 8 + 8)
	frameHead   = 16
	alignment   = 8
)

// MaxBatchBytes limits Batch.Size: the bytes of entries, figures and notes, and 85 for each change.
const MaxBatchBytes = 256 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logID identifies a log. It is random.
type logID [idBytes]byte

// header is the header of a segment.
type header struct {
	id       logID
	sequence uint64
	before   int64 // end of the previous segment; everything up to it was synced
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
		return h, fmt.Errorf("%w: its format is %q, this build supports %q", ErrForeign, b[:len(magic)],
			magic)
	}
	b = b[len(magic):]
	copy(h.id[:], b)
	h.sequence = binary.LittleEndian.Uint64(b[idBytes:])
	h.before = int64(binary.LittleEndian.Uint64(b[idBytes+8:]))
	return h, nil
}

// seed returns the initial value of the CRCs of the segment's frames.
func (h header) seed() uint32 {
	var sequence [8]byte
	binary.LittleEndian.PutUint64(sequence[:], h.sequence)
	return crc32.Update(crc32.Checksum(h.id[:], castagnoli), castagnoli, sequence[:])
}

// frame is the decoded head of a frame.
type frame struct {
	length, number, sum uint32
}

// span returns the number of bytes of the frame in the segment.
func (f frame) span() int64 { return align(frameHead + int64(f.length)) }

func align(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// sealFrame completes a frame and pads it. b contains space for the head, then the payload.
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

// matches reports whether b is the payload of the head.
func (f frame) matches(b []byte, seed uint32) bool {
	return crc32.Update(seed, castagnoli, b) == f.sum
}
