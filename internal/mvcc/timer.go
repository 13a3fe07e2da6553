package mvcc

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// This file defines how durable timers are stored. A timer is a cell of TimerTable. The transaction
// that notifies the timer's target also deletes the cell.

// TimerTable is the table of all timers. It has no name, and always exists. Its rows come after
// those of all users' tables.
const TimerTable TableID = 1<<32 - 2

// TimerShards is the number of parts of the table, each in the order of due times, so that timers
// set at the same time for the same time are not all written at one place.
const TimerShards = 8

// Timer is one timer. Of the same target and due time there is at most one.
type Timer struct {
	Target Cell  // the cell of a weak column that is notified when the timer fires
	Due    int64 // earliest time to fire, in milliseconds since the Unix epoch by the oracle's time
	// After is the delay in milliseconds from the commit of the timer's own record, whose time is
	// unknown when it is written; 0 means only Due counts.
	After int64
}

const (
	timerColumn = "t"
	dueAt       = 1           // a row is the shard, the due time,
	tableAt     = dueAt + 8   // the target's table,
	targetAt    = tableAt + 4 // and a hash of its row and column, which may be long
	timerRow    = targetAt + 16
)

// Write returns the timer's cell and its value.
func (t Timer) Write() (Cell, []byte) {
	value := binary.AppendUvarint(nil, uint64(t.After))
	at := len(value)
	value = binary.AppendUvarint(value, uint64(len(t.Target.Row)))
	value = append(append(value, t.Target.Row...), t.Target.Column...)
	hash := sha256.Sum256(value[at:])
	row := append(make([]byte, 0, timerRow), hash[31]%TimerShards)
	row = binary.BigEndian.AppendUint64(row, uint64(t.Due))
	row = binary.BigEndian.AppendUint32(row, uint32(t.Target.Table))
	row = append(row, hash[:timerRow-targetAt]...)
	return Cell{Table: TimerTable, Row: string(row), Column: timerColumn}, value
}

// TimerOf returns the timer that the cell with the value stores; ok is false if the cell is not a
// timer.
func TimerOf(c Cell, value []byte) (t Timer, ok bool) {
	after, n := binary.Uvarint(value)
	if n <= 0 {
		return t, false
	}
	value = value[n:]
	length, n := binary.Uvarint(value)
	if n <= 0 || length > uint64(len(value)-n) {
		return t, false
	}
	value = value[n:]
	t.Target.Row, t.Target.Column = string(value[:length]), string(value[length:])
	t.Target.Table, ok = TimerTarget(c)
	if !ok {
		return t, false
	}
	t.Due, t.After = int64(binary.BigEndian.Uint64([]byte(c.Row[dueAt:tableAt]))), int64(after)
	// A cell that a client has written itself is a timer only if it is the cell that Write returns.
	written, _ := t.Write()
	return t, written == c
}

// TimerTarget returns the table of the cell that a timer notifies: clients that may write it may
// set the timer. ok is false if the cell is not a timer's.
func TimerTarget(c Cell) (table TableID, ok bool) {
	if c.Table != TimerTable || c.Class != ClassData || c.Column != timerColumn ||
		len(c.Row) != timerRow || c.Row[0] >= TimerShards {
		return 0, false
	}
	table = TableID(binary.BigEndian.Uint32([]byte(c.Row[tableAt:targetAt])))
	return table, table >= FirstUserTable && table < TimerTable
}

// TimerDue returns the due time, in milliseconds since the Unix epoch, of a row of TimerTable.
func TimerDue(row string) int64 {
	var due [8]byte
	copy(due[:], row[min(dueAt, len(row)):])
	return int64(min(binary.BigEndian.Uint64(due[:]), math.MaxInt64))
}

// TimerSpan returns the range of a shard's timers with from ≤ Due < before.
func TimerSpan(shard int, from, before int64) Span {
	at := func(due int64) string {
		return string(binary.BigEndian.AppendUint64([]byte{byte(shard)}, uint64(max(due, 0))))
	}
	return Span{Table: TimerTable, Start: at(from), End: at(before), HasEnd: true}
}
