package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrAck reports an acknowledgment column that does not hold a timestamp. It is permanent.
var ErrAck = errors.New("notify: malformed acknowledgment")

// AckCell returns the observer's acknowledgment column in the row of an observed cell
// (§2.4).
func AckCell(observed mvcc.Cell, observer string) mvcc.Cell {
	return mvcc.Cell{
		Table: observed.Table, Row: observed.Row, Class: mvcc.ClassAck, Column: observer,
	}
}

// EncodeAck returns the value of the acknowledgment of a run that began at start, of that version of
// the observer: 8 bytes, followed by the version as a uvarint unless it is 0. Other versions need
// version.ObserverVersions.
func EncodeAck(start mvcc.Timestamp, version uint32) []byte {
	value := binary.BigEndian.AppendUint64(nil, uint64(start))
	if version > 0 {
		value = binary.AppendUvarint(value, uint64(version))
	}
	return value
}

// DecodeAck decodes the value of an acknowledgment. An empty value is timestamp 0 of version 0. The
// error wraps ErrAck.
func DecodeAck(value []byte) (start mvcc.Timestamp, version uint32, err error) {
	switch {
	case len(value) == 0:
		return 0, 0, nil
	case len(value) < 8:
		return 0, 0, fmt.Errorf("%w: %d bytes", ErrAck, len(value))
	case len(value) > 8:
		v, n := binary.Uvarint(value[8:])
		if n != len(value)-8 || v == 0 || v > math.MaxInt32 {
			return 0, 0, fmt.Errorf("%w: version % x", ErrAck, value[8:])
		}
		version = uint32(v)
	}
	return mvcc.Timestamp(binary.BigEndian.Uint64(value)), version, nil
}

// ackLock marks the length of a column of ClassAck in a lock's key.
const ackLock = 1 << 31

// LockKey returns the key of a notify cell's advisory lock: the table, the length of the column
// with its class, the column and the row. The paper locks whole rows. Here each observer has a
// lock of its own, so that observers of one row, such as the links of a chain, do not wait for
// each other.
func LockKey(c mvcc.Cell) string {
	key := make([]byte, 0, 8+len(c.Column)+len(c.Row))
	key = binary.BigEndian.AppendUint32(key, uint32(c.Table))
	length := uint32(len(c.Column))
	if c.Class == mvcc.ClassAck {
		length |= ackLock
	}
	key = binary.BigEndian.AppendUint32(key, length)
	key = append(key, c.Column...)
	return string(append(key, c.Row...))
}

// LockedCell returns the cell of a key made by LockKey. If the key is malformed ok is
// false.
func LockedCell(key string) (cell mvcc.Cell, ok bool) {
	if len(key) < 8 {
		return mvcc.Cell{}, false
	}
	table, column := binary.BigEndian.Uint32([]byte(key[:4])),
		binary.BigEndian.Uint32([]byte(key[4:8]))
	cell.Table = mvcc.TableID(table)
	if column&ackLock != 0 {
		cell.Class, column = mvcc.ClassAck, column&^ackLock
	}
	rest := key[8:]
	if uint64(column) > uint64(len(rest)) {
		return mvcc.Cell{}, false
	}
	cell.Column, cell.Row = rest[:column], rest[column:]
	return cell, true
}
