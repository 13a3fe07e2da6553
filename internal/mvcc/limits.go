package mvcc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrInvalid is wrapped by errors about requests that no correct client sends. The
// operation surely had no effect.
var ErrInvalid = errors.New("mvcc: invalid request")

// ErrCorrupt is wrapped when the state contradicts itself: a record names a long value
// that is not there.
var ErrCorrupt = errors.New("mvcc: corrupt state")

// LimitError names the exceeded limit of a request. The operation surely had no effect, and never
// can have.
type LimitError struct {
	What  string // "row", "column", "value", "timer" or "batch"
	Size  int    // bytes
	Limit int    // bytes
}

// Error names the limit and both sizes.
func (e *LimitError) Error() string {
	return fmt.Sprintf("mvcc: %s of %d bytes exceeds the limit of %d", e.What, e.Size, e.Limit)
}

// Check reports, as a *LimitError or wrapping ErrInvalid, the first fault of the writes,
// and of the other cells that the same operation names. A limit of zero is no limit. A timer's
// value has room for the row and the column that it notifies, and no more: the job that fires
// timers reads many of them at once.
func (l Limits) Check(writes []CellWriteRequest, cells []Cell) error {
	// Summed without the encoding's overhead: the tablet's entry and Badger's transaction
	// are sized with room for it.
	batch := 0
	for i := range writes {
		w := &writes[i]
		if w.Kind < KindPut || w.Kind > KindLock {
			return fmt.Errorf("%w: unknown kind of write %d", ErrInvalid, w.Kind)
		}
		if err := l.CheckCell(w.Cell); err != nil {
			return err
		}
		what, most := "value", l.Value
		if w.Cell.Table == TimerTable && l.Row > 0 && l.Column > 0 {
			what, most = "timer", l.Row+l.Column+2*binary.MaxVarintLen64
		}
		if err := within(what, len(w.Value), most); err != nil {
			return err
		}
		batch += len(w.Cell.Row) + len(w.Cell.Column) + len(w.Value)
	}
	for _, c := range cells {
		if err := l.CheckCell(c); err != nil {
			return err
		}
		batch += len(c.Row) + len(c.Column)
	}
	return within("batch", batch, l.Batch)
}

// CheckCell reports a row or column over its limit as a *LimitError, and an unknown class by an
// error that wraps ErrInvalid.
func (l Limits) CheckCell(c Cell) error {
	if c.Class > ClassAck {
		return fmt.Errorf("%w: unknown column class %d", ErrInvalid, c.Class)
	}
	if err := within("row", len(c.Row), l.Row); err != nil {
		return err
	}
	return within("column", len(c.Column), l.Column)
}

// within makes the error when size passes a limit that is set.
func within(what string, size, limit int) error {
	if limit > 0 && size > limit {
		return &LimitError{What: what, Size: size, Limit: limit}
	}
	return nil
}

// checkStart rejects start timestamps that the oracle never issues.
func checkStart(start Timestamp) error {
	if start == 0 || start == MaxTimestamp {
		return fmt.Errorf("%w: start timestamp %d, which the oracle never issues",
			ErrInvalid, start)
	}
	return nil
}
