package notify

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrAck: an acknowledgment column holds something else than a timestamp. Permanent.
var ErrAck = errors.New("notify: malformed acknowledgment")

// AckCell is the acknowledgment column of the observer in the row of an observed cell (§2.4).
func AckCell(observed mvcc.Cell, observer string) mvcc.Cell {
	return mvcc.Cell{Table: observed.Table, Row: observed.Row, Class: mvcc.ClassAck, Column: observer}
}

// EncodeAck is the value of an acknowledgment: the start timestamp of the run.
func EncodeAck(start mvcc.Timestamp) []byte { return binary.BigEndian.AppendUint64(nil, uint64(start)) }

// DecodeAck reads the value of an acknowledgment; no value is timestamp 0. Errors: ErrAck.
func DecodeAck(value []byte) (mvcc.Timestamp, error) {
	if len(value) == 0 {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: %d bytes", ErrAck, len(value))
	}
	return mvcc.Timestamp(binary.BigEndian.Uint64(value)), nil
}

// LockKey is the key of a cell's advisory lock: table, length of the column, column, row.
// The lock is the paper's row lock, one for each observed column of the row: two
// observers of one row wait for each other no more than any two transactions do, and a
// chain of observers along one row is not slowed by the lock of the link before.
func LockKey(c mvcc.Cell) string {
	key := make([]byte, 0, 8+len(c.Column)+len(c.Row))
	key = binary.BigEndian.AppendUint32(key, uint32(c.Table))
	key = binary.BigEndian.AppendUint32(key, uint32(len(c.Column)))
	key = append(key, c.Column...)
	return string(append(key, c.Row...))
}

// LockedCell is the cell of a lock's key; ok is false if it is no such key.
func LockedCell(key string) (cell mvcc.Cell, ok bool) {
	if len(key) < 8 {
		return mvcc.Cell{}, false
	}
	table, column := binary.BigEndian.Uint32([]byte(key[:4])), binary.BigEndian.Uint32([]byte(key[4:8]))
	if rest := key[8:]; uint64(column) <= uint64(len(rest)) {
		return mvcc.Cell{Table: mvcc.TableID(table), Column: rest[:column], Row: rest[column:]}, true
	}
	return mvcc.Cell{}, false
}
