package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrBadValue is returned by the decoders for bytes that no encoder of this package made:
// corruption, or a disk format that this build does not know.
var ErrBadValue = errors.New("store: malformed value")

// A value consists of a few varints and then the user's bytes up to the end. The disk format
// in VERSION covers them all. No value is empty, so that a lost one cannot be mistaken for a
// value.
const (
	kindMask byte = 0x03 // mvcc.Kind, in the first byte of W, H, K and L
	longBit  byte = 0x04 // the value is in D

	// plainTag opens the values of D, M and R, which have no header of their own.
	plainTag byte = 0x01

	replayBit byte = 0x01 // N's first byte
)

// reader cuts varints and strings off a value. After the first fault bad stays set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if r.bad || len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) fixed64() uint64 {
	if r.bad || len(r.b) < tsBytes {
		r.bad = true
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[tsBytes:]
	return v
}

func (r *reader) string() string {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) cell() mvcc.Cell {
	t := r.uvarint()
	if t > 1<<32-1 {
		r.bad = true
	}
	c := mvcc.Cell{Table: mvcc.TableID(t), Class: mvcc.Class(r.byte())}
	c.Row = r.string()
	c.Column = r.string()
	return c
}

func (r *reader) worker() mvcc.Worker {
	return mvcc.Worker{Node: r.uvarint(), Incarnation: r.uvarint()}
}

// done returns an error that names what if anything was malformed. rest permits bytes to be
// left over.
func (r *reader) done(what string, rest bool) error {
	if r.bad || (!rest && len(r.b) != 0) {
		return fmt.Errorf("%w: %s", ErrBadValue, what)
	}
	return nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendCellValue(dst []byte, c mvcc.Cell) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(c.Table)), byte(c.Class))
	return appendString(appendString(dst, c.Row), c.Column)
}

func appendWorker(dst []byte, w mvcc.Worker) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, w.Node), w.Incarnation)
}

func kindByte(k mvcc.Kind, long bool) byte {
	b := byte(k) & kindMask
	if long {
		b |= longBit
	}
	return b
}

func (r *reader) kind() (k mvcc.Kind, long bool) {
	b := r.byte()
	if b&^(kindMask|longBit) != 0 {
		r.bad = true
	}
	return mvcc.Kind(b & kindMask), b&longBit != 0
}

// appendWrite encodes a write record: kind, commit_ts in 8 bytes, commit_ts − start_ts as
// a varint (short, as both are oracle timestamps some milliseconds apart), inline value.
func appendWrite(dst []byte, w *mvcc.Write) []byte {
	dst = append(dst, kindByte(w.Kind, w.Long))
	dst = binary.BigEndian.AppendUint64(dst, uint64(w.CommitTS))
	dst = binary.AppendUvarint(dst, uint64(w.CommitTS-w.StartTS))
	return append(dst, w.Value...)
}

// DecodeWrite decodes a value of W, H or K. Value aliases b. The error is ErrBadValue, wrapped.
func DecodeWrite(b []byte) (mvcc.Write, error) {
	r := reader{b: b}
	var w mvcc.Write
	w.Kind, w.Long = r.kind()
	w.CommitTS = mvcc.Timestamp(r.fixed64())
	w.StartTS = w.CommitTS - mvcc.Timestamp(r.uvarint())
	w.Value = tail(r.b)
	return w, r.done("write record", true)
}

// copyWrite is DecodeWrite with a value that the caller may keep.
func copyWrite(b []byte) (mvcc.Write, error) {
	w, err := DecodeWrite(b)
	w.Value = bytes.Clone(w.Value)
	return w, err
}

// tail returns nil for no bytes: an empty value and none are the same to the rules.
func tail(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// appendLock encodes a lock. Reservations (Token != 0) live in memory only and are never encoded.
func appendLock(dst []byte, l *mvcc.Lock) []byte {
	dst = append(dst, kindByte(l.Kind, l.Long))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.StartTS))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Expiry))
	dst = appendWorker(dst, l.Worker)
	dst = appendCellValue(dst, l.Primary)
	return append(dst, l.Value...)
}

// DecodeLock decodes a value of L. Value is a copy. The error is ErrBadValue, wrapped.
func DecodeLock(b []byte) (mvcc.Lock, error) {
	r := reader{b: b}
	var l mvcc.Lock
	l.Kind, l.Long = r.kind()
	l.StartTS = mvcc.Timestamp(r.fixed64())
	l.Expiry = mvcc.Timestamp(r.fixed64())
	l.Worker = r.worker()
	l.Primary = r.cell()
	l.Value = bytes.Clone(tail(r.b))
	return l, r.done("lock", true)
}

func appendNotify(dst []byte, n *mvcc.Notify) []byte {
	var flags byte
	if n.Replay {
		flags = replayBit
	}
	dst = binary.BigEndian.AppendUint64(append(dst, flags), uint64(n.TS))
	dst = binary.AppendUvarint(dst, uint64(n.Attempts))
	dst = binary.AppendUvarint(dst, uint64(n.ParkedTS))
	return append(dst, n.Error...)
}

// DecodeNotify decodes a value of N. The error is ErrBadValue, wrapped.
func DecodeNotify(b []byte) (mvcc.Notify, error) {
	r := reader{b: b}
	flags := r.byte()
	n := mvcc.Notify{Replay: flags&replayBit != 0, TS: mvcc.Timestamp(r.fixed64())}
	attempts := r.uvarint()
	n.Attempts = uint32(attempts)
	n.ParkedTS = mvcc.Timestamp(r.uvarint())
	n.Error = string(r.b)
	if flags&^replayBit != 0 || attempts > 1<<32-1 {
		r.bad = true
	}
	return n, r.done("notification", true)
}

func appendIntent(dst []byte, i *mvcc.Intent) []byte {
	dst = append(dst, plainTag)
	dst = binary.BigEndian.AppendUint64(dst, uint64(i.Expiry))
	return appendCellValue(appendWorker(dst, i.Worker), i.Primary)
}

// DecodeIntent decodes a value of I. The error is ErrBadValue, wrapped.
func DecodeIntent(b []byte) (mvcc.Intent, error) {
	r := reader{b: b}
	r.bad = r.byte() != plainTag
	i := mvcc.Intent{Expiry: mvcc.Timestamp(r.fixed64()), Worker: r.worker()}
	i.Primary = r.cell()
	return i, r.done("intent", false)
}

// decodePlain decodes a value of D or M, or a tablet's state. The result aliases b.
func decodePlain(b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] != plainTag {
		return nil, fmt.Errorf("%w: %d bytes without a tag", ErrBadValue, len(b))
	}
	return b[1:], nil
}

// copyPlain is decodePlain with a result that the caller may keep.
func copyPlain(b []byte) ([]byte, error) {
	v, err := decodePlain(b)
	return bytes.Clone(v), err
}

// Encoder encodes several mutations as they are stored, in memory that they share.
type Encoder struct{ room []byte }

// NewEncoder returns one with room for these mutations.
func NewEncoder(muts []mvcc.Mutation) Encoder {
	n := 0
	for i := range muts {
		if n += muts[i].Cell.KeyBytes(); !muts[i].Delete {
			n += valueBytes(&muts[i])
		}
	}
	return Encoder{make([]byte, 0, n)}
}

// Encode returns the key and value that m stands for; value is nil for a delete. Both
// belong to the caller, and what was returned before stays as it is.
func (e *Encoder) Encode(m *mvcc.Mutation) (key, value []byte) {
	begin := len(e.room)
	e.room = AppendKey(e.room, m.Group, m.Cell, m.TS)
	end := len(e.room)
	key = e.room[begin:end:end]
	if m.Delete {
		return key, nil
	}
	e.room = appendValue(e.room, m)
	return key, e.room[end:len(e.room):len(e.room)]
}

// appendValue appends the value of a put.
func appendValue(dst []byte, m *mvcc.Mutation) []byte {
	switch m.Group {
	case mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupLocked:
		return appendWrite(dst, m.Write)
	case mvcc.GroupLock:
		return appendLock(dst, m.Lock)
	case mvcc.GroupNotify:
		return appendNotify(dst, m.Notify)
	case mvcc.GroupIntent:
		return appendIntent(dst, m.Intent)
	case mvcc.GroupRollback:
		return append(dst, plainTag)
	default: // D, M
		return append(append(dst, plainTag), m.Value...)
	}
}

// valueBytes bounds the length of appendValue's result.
func valueBytes(m *mvcc.Mutation) int {
	const fixed = 1 + 2*tsBytes + 2*binary.MaxVarintLen64
	cell := func(c mvcc.Cell) int {
		return 1 + 3*binary.MaxVarintLen32 + len(c.Row) + len(c.Column)
	}
	switch {
	case m.Write != nil:
		return fixed + len(m.Write.Value)
	case m.Lock != nil:
		return fixed + cell(m.Lock.Primary) + len(m.Lock.Value)
	case m.Notify != nil:
		return fixed + len(m.Notify.Error)
	case m.Intent != nil:
		return fixed + cell(m.Intent.Primary)
	default:
		return 1 + len(m.Value)
	}
}
