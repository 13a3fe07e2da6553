package mvcc

import (
	"fmt"
)

// Get reads one cell at a timestamp (Figure 6 lines 8 to 24).
//
//   - StatusOK: Found, Value and the record's timestamps. A delete is not Found, but
//     Deleted with its timestamps.
//   - StatusLocked: Lock is in the way, possibly a reservation (Token != 0), which the
//     tablet waits for.
//   - StatusTooOld: at is below the bound.
func Get(v View, c Cell, at Timestamp) (ReadResult, error) {
	if at < v.Bound() {
		return ReadResult{Status: StatusTooOld}, nil
	}
	if lock, ok := v.Lock(c); ok && lock.blocks(at) {
		inTheWay := met(c, lock)
		return ReadResult{Status: StatusLocked, Lock: &inTheWay}, nil
	}
	// The lock first, then the record, both in one immutable view: a commit cannot slip
	// between them (line 10).
	newest, ok, err := v.Newest(c)
	if err != nil || !ok {
		return ReadResult{}, err
	}
	return readAt(v, c, newest, at)
}

// readAt returns the version visible at a timestamp of a cell with the given newest record. It does
// not look at the cell's lock.
func readAt(v View, c Cell, newest Write, at Timestamp) (ReadResult, error) {
	w, ok, err := visible(v, c, newest, at)
	if err != nil || !ok {
		return ReadResult{}, err
	}
	res := ReadResult{CommitTS: w.CommitTS, StartTS: w.StartTS}
	if w.Kind == KindDelete {
		res.Deleted = true
		return res, nil
	}
	res.Found, res.Value = true, w.Value
	if !w.Long {
		return res, nil
	}
	value, there, err := v.Data(c, w.StartTS)
	if err != nil {
		return ReadResult{}, err
	}
	// The value is written no later than its record, and collected in the same batch: a
	// record without it is damage.
	if !there {
		return ReadResult{}, fmt.Errorf("%w: row %q, column %q: the value with start timestamp %d is missing",
			ErrCorrupt, c.Row, c.Column, w.StartTS)
	}
	res.Value = value
	return res, nil
}

// visible returns the newest record with commit_ts ≤ at. Only a read below the newest one looks
// into H.
func visible(v View, c Cell, newest Write, at Timestamp) (Write, bool, error) {
	if newest.CommitTS <= at {
		return newest, true, nil
	}
	return older(v, c, at)
}

// older returns the newest record in H with commit_ts ≤ at. It is a separate function because the
// iteration's variables are on the heap, which the common path need not pay for.
func older(v View, c Cell, at Timestamp) (Write, bool, error) {
	for w, err := range v.Older(c, at) {
		return w, err == nil, err
	}
	return Write{}, false, nil
}

// blocks reports whether a read at the timestamp must wait for the lock (Figure 6 line
// 12). A reservation does not block it once its CommitTS is known and above the read's.
func (l *Lock) blocks(at Timestamp) bool {
	// Whatever becomes of a lock without a write, readers see no difference.
	// An asynchronous commit commits at its MinCommitTS or later.
	if l.StartTS > at || l.Kind == KindLock || l.MinCommitTS > at {
		return false
	}
	return l.Token == 0 || l.CommitTS == 0 || l.CommitTS <= at
}
