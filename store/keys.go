package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrBadKey reports a key that AppendKey does not produce.
var ErrBadKey = errors.New("store: malformed key")

// Layout of keys. Keys of one locality group share their first byte, so a scan of one group
// reads nothing of another (design section 3):
//
//	W K L M  group | table | esc(row) | class | esc(column)
//	H        …                                              | ^commit_ts
//	D R      …                                              | start_ts
//	N        group | table | class | esc(column) | esc(row)
//	I        …                                              | start_ts
//	tablet   'T' | tablet id
//	others   'a' applied.go, 'c' chunk.go, 'i', 'n', 's', 'x' replica.go, 0x00, 0xff reclaim.go
//
// Numbers are big-endian. esc(s) replaces 0x00 by 0x00 0xff and ends with 0x00 0x01, so that
// keys sort by these parts in order, each as a byte string, and no key is a prefix of another
// cell's.
const (
	tabletPrefix = 'T'

	escByte = 0x00
	escZero = 0xff
	escEnd  = 0x01

	tableBytes = 4
	tsBytes    = 8
)

// appendEscaped appends esc(s).
func appendEscaped(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, escByte)
		if i < 0 {
			break
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, escByte, escZero)
		s = s[i+1:]
	}
	dst = append(dst, s...)
	return append(dst, escByte, escEnd)
}

// cutEscaped decodes one escaped string at the start of b and returns what follows it.
func cutEscaped(b []byte) (s string, rest []byte, err error) {
	i := bytes.IndexByte(b, escByte)
	if i < 0 || i+1 >= len(b) {
		return "", nil, ErrBadKey
	}
	if b[i+1] == escEnd { // the common case: no zero byte
		return string(b[:i]), b[i+2:], nil
	}
	var out []byte
	for {
		if b[i+1] != escZero && b[i+1] != escEnd {
			return "", nil, ErrBadKey
		}
		out = append(out, b[:i]...)
		end := b[i+1] == escEnd
		b = b[i+2:]
		if end {
			return string(out), b, nil
		}
		out = append(out, 0)
		if i = bytes.IndexByte(b, escByte); i < 0 || i+1 >= len(b) {
			return "", nil, ErrBadKey
		}
	}
}

// appendTable appends the common prefix of a table's keys in group g.
func appendTable(dst []byte, g mvcc.Group, t mvcc.TableID) []byte {
	return binary.BigEndian.AppendUint32(append(dst, byte(g)), uint32(t))
}

// appendRow appends the common prefix of a row's keys in group g, which must not be
// column-first.
func appendRow(dst []byte, g mvcc.Group, t mvcc.TableID, row string) []byte {
	return appendEscaped(appendTable(dst, g, t), row)
}

// appendColumn appends the common prefix of a column's keys in a column-first group (N, I).
func appendColumn(dst []byte, g mvcc.Group, t mvcc.TableID, class mvcc.Class,
	column string) []byte {
	return appendEscaped(append(appendTable(dst, g, t), byte(class)), column)
}

func columnFirst(g mvcc.Group) bool { return g == mvcc.GroupNotify || g == mvcc.GroupIntent }

// hasTS reports whether the keys of g end with a timestamp.
func hasTS(g mvcc.Group) bool {
	switch g {
	case mvcc.GroupHistory, mvcc.GroupData, mvcc.GroupRollback, mvcc.GroupIntent:
		return true
	default:
		return false
	}
}

// appendCell appends the key of a cell in group g without its timestamp.
func appendCell(dst []byte, g mvcc.Group, c mvcc.Cell) []byte {
	if columnFirst(g) {
		return appendEscaped(appendColumn(dst, g, c.Table, c.Class, c.Column), c.Row)
	}
	dst = append(appendRow(dst, g, c.Table, c.Row), byte(c.Class))
	return appendEscaped(dst, c.Column)
}

// AppendKey appends the key of (group, cell, ts) to dst. Groups without timestamps ignore ts.
func AppendKey(dst []byte, g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) []byte {
	dst = appendCell(dst, g, c)
	switch {
	case g == mvcc.GroupHistory:
		return binary.BigEndian.AppendUint64(dst, ^uint64(ts)) // newest first
	case hasTS(g):
		return binary.BigEndian.AppendUint64(dst, uint64(ts))
	default:
		return dst
	}
}

// DecodeKey is the inverse of AppendKey. For all other keys, the store's own included (tablet
// states, records), it returns an error that wraps ErrBadKey.
func DecodeKey(key []byte) (g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp, err error) {
	if len(key) < 1+tableBytes {
		return 0, c, 0, fmt.Errorf("%w: only %d bytes", ErrBadKey, len(key))
	}
	g = mvcc.Group(key[0])
	switch g {
	case mvcc.GroupWrite, mvcc.GroupHistory, mvcc.GroupData, mvcc.GroupLock, mvcc.GroupLocked,
		mvcc.GroupRollback, mvcc.GroupNotify, mvcc.GroupIntent, mvcc.GroupRaw:
	default:
		return 0, c, 0, fmt.Errorf("%w: unknown group %q", ErrBadKey, key[0])
	}
	c.Table = mvcc.TableID(binary.BigEndian.Uint32(key[1:]))
	rest, err := cutCell(g, key[1+tableBytes:], &c)
	if err != nil {
		return 0, mvcc.Cell{}, 0, err
	}
	if !hasTS(g) {
		if len(rest) != 0 {
			return 0, mvcc.Cell{}, 0, fmt.Errorf("%w: %d extra bytes", ErrBadKey, len(rest))
		}
		return g, c, 0, nil
	}
	if len(rest) != tsBytes {
		return 0, mvcc.Cell{}, 0, fmt.Errorf("%w: timestamp of %d bytes", ErrBadKey, len(rest))
	}
	ts = mvcc.Timestamp(binary.BigEndian.Uint64(rest))
	if g == mvcc.GroupHistory {
		ts = ^ts
	}
	return g, c, ts, nil
}

// cutCell decodes the part between table and timestamp into c, in the group's order.
func cutCell(g mvcc.Group, b []byte, c *mvcc.Cell) (rest []byte, err error) {
	if columnFirst(g) {
		if len(b) == 0 {
			return nil, ErrBadKey
		}
		c.Class = mvcc.Class(b[0])
		if c.Column, b, err = cutEscaped(b[1:]); err != nil {
			return nil, err
		}
		c.Row, b, err = cutEscaped(b)
		return b, err
	}
	if c.Row, b, err = cutEscaped(b); err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, ErrBadKey
	}
	c.Class = mvcc.Class(b[0])
	c.Column, b, err = cutEscaped(b[1:])
	return b, err
}

// prefixEnd returns the smallest key above all keys with the prefix, which must not be all
// 0xff: groups are letters.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
