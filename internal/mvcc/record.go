package mvcc

import (
	"cmp"
	"strings"
)

// Compare orders cells by table, row, class and column, all bytewise, as the store does in all
// groups but N and I.
func (c Cell) Compare(d Cell) int {
	if n := cmp.Compare(c.Table, d.Table); n != 0 {
		return n
	}
	if n := strings.Compare(c.Row, d.Row); n != 0 {
		return n
	}
	if n := cmp.Compare(c.Class, d.Class); n != 0 {
		return n
	}
	return strings.Compare(c.Column, d.Column)
}

// ownRecord looks for the write record of transaction start on the cell, whose newest
// record is given (ok false: none).
//
// The intervals [start_ts, commit_ts] of one cell's records are disjoint: a
// record that was written on top of ours started after our commit. So H is consulted only
// if the newest record started after us, and the walk ends at the first record that did
// not.
func ownRecord(v View, c Cell, start Timestamp, newest Write, ok bool) (Write, bool, error) {
	// The newest record began before this transaction, whose own record would be above it.
	if !ok || newest.StartTS < start {
		return Write{}, false, nil
	}
	if newest.StartTS == start {
		return newest, true, nil
	}
	return ownOlder(v, c, start, newest.CommitTS-1)
}

// ownOlder looks for the write record of transaction start in H, from the given commit
// timestamp down.
func ownOlder(v View, c Cell, start, from Timestamp) (Write, bool, error) {
	for w, err := range v.Older(c, from) {
		// A fault is not "not found": taking it for that would commit or roll back twice.
		if err != nil {
			return Write{}, false, err
		}
		if w.StartTS == start {
			return w, true, nil
		}
		if w.StartTS < start {
			break
		}
	}
	return Write{}, false, nil
}

// conflicts is the write-write check of snapshot isolation (Figure 6 line 32).
func conflicts(newest Write, start Timestamp) bool {
	return newest.CommitTS >= start
}

// admit decides whether transaction start, which has no lock of its own on the cell, may write or
// lock it (Figure 6 lines 31 to 34). Four lookups: the lock, by the caller, the newest record, the
// newest committed lock, the rollback record. Permanent refusals precede temporary ones.
func admit(v View, c Cell, start Timestamp, lock Lock, locked bool) (Result, error) {
	if weak(v, c) {
		return Result{Status: StatusNotifyOnly, ConflictAt: c}, nil
	}
	newest, ok, err := v.Newest(c)
	if err != nil {
		return Result{}, err
	}
	// Our own record first: seen as a conflict, a late copy would report a committed
	// transaction as failed.
	own, committed, err := ownRecord(v, c, start, newest, ok)
	if err != nil {
		return Result{}, err
	}
	if committed {
		return Result{Status: StatusCommitted, CommitTS: own.CommitTS}, nil
	}
	if ok && conflicts(newest, start) {
		return Result{Status: StatusConflict, CommitTS: newest.CommitTS, ConflictAt: c}, nil
	}
	// A transaction that committed after our start locked the cell, and so relied on its contents
	// up to that commit.
	past, ok, err := v.PastLock(c, start)
	switch {
	case err != nil:
		return Result{}, err
	case ok && past.StartTS == start: // our own
		return Result{Status: StatusCommitted, CommitTS: past.CommitTS}, nil
	case ok:
		return Result{Status: StatusConflict, CommitTS: past.CommitTS, ConflictAt: c}, nil
	}
	rolledBack, err := v.RolledBack(c, start)
	if err != nil {
		return Result{}, err
	}
	if rolledBack {
		return Result{Status: StatusRolledBack}, nil
	}
	// Any other transaction's lock, older or younger (line 34): what it will become is not known.
	if locked {
		return Result{Status: StatusLocked, Locks: []LockInfo{met(c, lock)}}, nil
	}
	return Result{}, nil
}

// outcome returns the outcome of transaction start at the cell, where it has no lock: committed,
// rolled back, unknown below the safepoint, else not found.
func outcome(v View, c Cell, start Timestamp) (Result, error) {
	newest, ok, err := v.Newest(c)
	if err != nil {
		return Result{}, err
	}
	own, committed, err := ownRecord(v, c, start, newest, ok)
	if err != nil {
		return Result{}, err
	}
	if committed {
		return Result{Status: StatusCommitted, CommitTS: own.CommitTS}, nil
	}
	rolledBack, err := v.RolledBack(c, start)
	switch {
	case err != nil:
		return Result{}, err
	case rolledBack:
		return Result{Status: StatusRolledBack}, nil
	case start < v.Safepoint():
		// A record of the transaction may have been collected.
		return Result{Status: StatusUnknown}, nil
	}
	return Result{Status: StatusNotFound}, nil
}

// weak reports whether the cell is of a notify-only column (§2.4).
func weak(v View, c Cell) bool {
	return c.Class == ClassData && v.Observed(c.Table, c.Column).How == ObservedWeak
}

// met returns the description of a lock for a transaction that encountered it, without its value.
func met(c Cell, l Lock) LockInfo {
	l.Value = nil
	return LockInfo{Cell: c, Lock: l}
}

// reserved reports whether the lock is a reservation of transaction start.
func (l *Lock) reserved(start Timestamp) bool { return l.Token != 0 && l.StartTS == start }

// heldBy reports whether the lock was prewritten by transaction start.
func (l *Lock) heldBy(start Timestamp) bool { return l.Token == 0 && l.StartTS == start }
