package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrBadValue reports a value that no encoder of this package produces: it is corrupt, or of a
// disk format that this build does not support.
var ErrBadValue = errors.New("store: malformed value")

// A value consists of a few bytes and numbers followed by the user's bytes. The disk format in
// VERSION covers all values. None is empty, so that a lost value is not mistaken for an empty one.
const (
	kindMask byte = 0x03 // mvcc.Kind, in the first byte of W, H, K and L
	longBit  byte = 0x04 // the value is in D

	// plainTag is the first byte of the values of D, M and R and of most of the store's own keys.
	// It is also that of I's values, with originBit if they have origins.
	plainTag byte = 0x01

	replayBit byte = 0x01 // in N's first byte: mvcc.Notify.Replay
	// originBit, in the first byte of N, L and I, means that the record has origins. Builds before
	// version.Origins do not support it.
	originBit byte = 0x08
	// L is part of an asynchronous commit. Builds before version.AsyncCommits do not support it.
	asyncBit byte = 0x10
)

// reader consumes varints and strings from the front of a value. After the first fault bad
// stays set.
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

// done returns an error that names `what` if the value was malformed. rest permits remaining
// bytes.
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

func (r *reader) kind(b byte) (k mvcc.Kind, long bool) {
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
	w.Kind, w.Long = r.kind(r.byte())
	w.CommitTS = mvcc.Timestamp(r.fixed64())
	w.StartTS = w.CommitTS - mvcc.Timestamp(r.uvarint())
	w.Value = tail(r.b)
	return w, r.done("write record", true)
}

// copyWrite decodes a write record and copies its value, so that the caller may keep it.
func copyWrite(b []byte) (mvcc.Write, error) {
	w, err := DecodeWrite(b)
	w.Value = bytes.Clone(w.Value)
	return w, err
}

// tail returns b, or nil if b is empty.
func tail(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// appendLock encodes a lock. Reservations (Token != 0) live in memory only and are never encoded.
func appendLock(dst []byte, l *mvcc.Lock) []byte {
	flags := kindByte(l.Kind, l.Long)
	if l.Origin != 0 {
		flags |= originBit
	}
	if l.MinCommitTS != 0 {
		flags |= asyncBit
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.StartTS))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Expiry))
	dst = appendWorker(dst, l.Worker)
	dst = appendCellValue(dst, l.Primary)
	if l.Origin != 0 {
		dst = binary.AppendUvarint(dst, uint64(l.Origin))
	}
	if l.MinCommitTS != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(l.MinCommitTS))
		dst = binary.AppendUvarint(dst, uint64(len(l.Secondaries)))
		for _, c := range l.Secondaries {
			dst = appendCellValue(dst, c)
		}
	}
	return append(dst, l.Value...)
}

// DecodeLock decodes a value of L. Value is a copy. The error is ErrBadValue, wrapped.
func DecodeLock(b []byte) (mvcc.Lock, error) {
	r := reader{b: b}
	var l mvcc.Lock
	flags := r.byte()
	l.Kind, l.Long = r.kind(flags &^ (originBit | asyncBit))
	l.StartTS = mvcc.Timestamp(r.fixed64())
	l.Expiry = mvcc.Timestamp(r.fixed64())
	l.Worker = r.worker()
	l.Primary = r.cell()
	if flags&originBit != 0 {
		l.Origin = mvcc.Timestamp(r.uvarint())
	}
	if flags&asyncBit != 0 {
		l.MinCommitTS = mvcc.Timestamp(r.fixed64())
		l.Secondaries = r.secondaries()
	}
	l.Value = bytes.Clone(tail(r.b))
	return l, r.done("lock", true)
}

// secondaries decodes the cells of an asynchronous commit.
func (r *reader) secondaries() []mvcc.Cell {
	n := r.uvarint()
	if r.bad || n >= mvcc.MaxAsyncCells {
		r.bad = true
		return nil
	}
	var cells []mvcc.Cell
	for range n {
		cells = append(cells, r.cell())
	}
	return cells
}

func appendNotify(dst []byte, n *mvcc.Notify) []byte {
	var flags byte
	if n.Replay {
		flags = replayBit
	}
	if n.Origins != (mvcc.Origins{}) {
		flags |= originBit
	}
	dst = binary.BigEndian.AppendUint64(append(dst, flags), uint64(n.TS))
	dst = binary.AppendUvarint(dst, uint64(n.Attempts))
	dst = binary.AppendUvarint(dst, uint64(n.ParkedTS))
	if flags&originBit != 0 {
		dst = binary.AppendUvarint(dst, uint64(n.Origins.First))
		dst = binary.AppendUvarint(dst, uint64(n.Origins.Until))
		dst = binary.AppendUvarint(dst, uint64(n.Origins.Later))
	}
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
	if flags&originBit != 0 {
		n.Origins = mvcc.Origins{First: mvcc.Timestamp(r.uvarint()),
			Until: mvcc.Timestamp(r.uvarint()), Later: mvcc.Timestamp(r.uvarint())}
	}
	n.Error = string(r.b)
	if flags&^(replayBit|originBit) != 0 || attempts > 1<<32-1 {
		r.bad = true
	}
	return n, r.done("notification", true)
}

func appendIntent(dst []byte, i *mvcc.Intent) []byte {
	tag := plainTag
	if i.Origin != 0 {
		tag |= originBit
	}
	dst = binary.BigEndian.AppendUint64(append(dst, tag), uint64(i.Expiry))
	dst = appendCellValue(appendWorker(dst, i.Worker), i.Primary)
	if i.Origin != 0 {
		dst = binary.AppendUvarint(dst, uint64(i.Origin))
	}
	return dst
}

// DecodeIntent decodes a value of I. The error is ErrBadValue, wrapped.
func DecodeIntent(b []byte) (mvcc.Intent, error) {
	r := reader{b: b}
	tag := r.byte()
	r.bad = tag&^originBit != plainTag
	i := mvcc.Intent{Expiry: mvcc.Timestamp(r.fixed64()), Worker: r.worker()}
	i.Primary = r.cell()
	if tag&originBit != 0 {
		i.Origin = mvcc.Timestamp(r.uvarint())
	}
	return i, r.done("intent", false)
}

// DecodePlain decodes a value of D or M, or a tablet's state, tombstone or marker. The result
// aliases b.
func DecodePlain(b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] != plainTag {
		return nil, fmt.Errorf("%w: %d bytes without the leading tag", ErrBadValue, len(b))
	}
	return b[1:], nil
}

// copyPlain decodes a plain value and copies it, so that the caller may keep it.
func copyPlain(b []byte) ([]byte, error) {
	v, err := DecodePlain(b)
	return bytes.Clone(v), err
}

// Encoder encodes several mutations in their stored form, in one shared buffer.
type Encoder struct {
	room  []byte
	plain bool
}

// NewEncoder returns an Encoder with room for these mutations. With plain it omits origins,
// which not all builds support.
func NewEncoder(muts []mvcc.Mutation, plain bool) Encoder {
	n := 0
	for i := range muts {
		if n += muts[i].Cell.KeyBytes(); !muts[i].Delete {
			n += valueBytes(&muts[i])
		}
	}
	return Encoder{make([]byte, 0, n), plain}
}

// Encode returns m's key and value; value is nil for a delete. Both belong to the caller,
// and earlier results remain valid.
func (e *Encoder) Encode(m *mvcc.Mutation) (key, value []byte) {
	begin := len(e.room)
	e.room = AppendKey(e.room, m.Group, m.Cell, m.TS)
	end := len(e.room)
	key = e.room[begin:end:end]
	if m.Delete {
		return key, nil
	}
	if e.plain {
		m = withoutOrigins(m)
	}
	e.room = appendValue(e.room, m)
	return key, e.room[end:len(e.room):len(e.room)]
}

// withoutOrigins returns the mutation in the form of builds before origins.
func withoutOrigins(m *mvcc.Mutation) *mvcc.Mutation {
	out := *m
	switch {
	case m.Lock != nil && m.Lock.Origin != 0:
		l := *m.Lock
		l.Origin, out.Lock = 0, &l
	case m.Intent != nil && m.Intent.Origin != 0:
		i := *m.Intent
		i.Origin, out.Intent = 0, &i
	case m.Notify != nil && m.Notify.Origins != (mvcc.Origins{}):
		n := *m.Notify
		n.Origins, out.Notify = mvcc.Origins{}, &n
	default:
		return m
	}
	return &out
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

// valueBytes bounds the length of appendValue's result, not counting a lock's secondaries.
func valueBytes(m *mvcc.Mutation) int {
	const fixed = 1 + 2*tsBytes + 3*binary.MaxVarintLen64
	cell := func(c mvcc.Cell) int {
		return 1 + 3*binary.MaxVarintLen32 + len(c.Row) + len(c.Column)
	}
	switch {
	case m.Write != nil:
		return fixed + len(m.Write.Value)
	case m.Lock != nil:
		return fixed + cell(m.Lock.Primary) + len(m.Lock.Value)
	case m.Notify != nil:
		return fixed + 2*binary.MaxVarintLen64 + len(m.Notify.Error)
	case m.Intent != nil:
		return fixed + cell(m.Intent.Primary)
	default:
		return 1 + len(m.Value)
	}
}
