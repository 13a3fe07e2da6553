package mvcc

import "fmt"

// Rollback ends the transaction at the cells and intents and leaves a record at each, also where
// it has no lock or intent: its later messages are refused. One request is all or nothing. With the
// primary among the cells it is also how a coordinator settles an unknown outcome.
//
//   - StatusOK: rolled back, from now or before.
//   - StatusCommitted: one of the cells is committed, at CommitTS. No effects.
//   - StatusLocked: a one-phase commit of the transaction, or the prewrite of its asynchronous
//     commit, is in flight; it is not decided yet. No effects.
//   - StatusUnknown: a cell has neither lock nor record, below the safepoint. No
//     effects.
//   - StatusLive: all of the cells have locks of an asynchronous commit, and MinCommitTS is the
//     greatest of theirs: the transaction's other cells decide. No effects.
//   - StatusRolledBack, of a request that asks: a cell has a rollback record, or a lock of a
//     two-phase commit. Otherwise StatusNotFound: a cell has neither lock nor record. No effects.
//
// A request that asks is for the cells of an asynchronous commit. A lock of a two-phase commit,
// whose primary decides, counts as rolled back. Without cells the error wraps ErrInvalid.
func Rollback(v View, r RollbackRequest) (Result, []Mutation, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, nil, err
	}
	if r.Ask && len(r.Cells) == 0 {
		return Result{}, nil, fmt.Errorf("%w: a rollback that asks, but names no cell", ErrInvalid)
	}
	e := effects{list: make([]Mutation, 0, 2*(len(r.Cells)+len(r.Intents)))}
	var minCommitTS Timestamp // the greatest of the transaction's locks here
	over, missing := false, false
	for _, c := range r.Cells {
		lock, locked := v.Lock(c)
		if locked && lock.reserved(r.StartTS) {
			return Result{Status: StatusLocked, Locks: []LockInfo{met(c, lock)}}, nil, nil
		}
		if locked && lock.heldBy(r.StartTS) {
			// The lock itself is the proof that the cell is undecided, also below the safepoint.
			e.rollback(c, &lock)
			minCommitTS = max(minCommitTS, lock.MinCommitTS)
			over = over || !lock.async()
			continue
		}
		res, err := outcome(v, c, r.StartTS)
		if err != nil {
			return Result{}, nil, err
		}
		switch res.Status {
		case StatusNotFound:
			e.rolledBack(c, r.StartTS)
			missing = true
		case StatusRolledBack:
			// An earlier rollback has left the record.
			over = true
		default:
			return res, nil, nil
		}
	}
	switch {
	case r.Ask && over:
		return Result{Status: StatusRolledBack}, nil, nil
	case r.Ask && missing:
		return Result{Status: StatusNotFound}, nil, nil
	case !over && !missing && len(r.Cells) > 0:
		return Result{Status: StatusLive, MinCommitTS: minCommitTS}, nil, nil
	}
	for _, c := range r.Intents {
		if err := rollbackIntent(v, c, r.StartTS, &e); err != nil {
			return Result{}, nil, err
		}
	}
	return Result{}, e.list, nil
}

// rollbackIntent erases the intent and leaves a record at its cell. An intent does not determine
// its transaction's outcome, so below the safepoint the record is merely omitted: the bound refuses
// a late intent there.
func rollbackIntent(v View, c Cell, start Timestamp, e *effects) error {
	_, there, err := v.Intent(c, start)
	if err != nil {
		return err
	}
	if there {
		e.dropIntent(c, start)
	}
	done, err := v.RolledBack(c, start)
	if err != nil || done || start < v.Safepoint() {
		return err
	}
	e.rolledBack(c, start)
	return nil
}

// CheckTxnStatus finds or makes the decision about a transaction at its primary (§2.2), for a
// transaction that has encountered one of its locks elsewhere.
//
//   - StatusCommitted: roll forward at CommitTS. StatusRolledBack: roll back; the record
//     is there, from now or before.
//   - StatusLive: Locks[0] is the primary lock if it is there; else the primary may still
//     arrive. Wait. If the lock is part of an asynchronous commit, its Secondaries decide.
//   - StatusLocked: the primary is reserved by the transaction's one-phase commit in flight, or by
//     the prewrite of its asynchronous commit.
//   - StatusUnknown: below the safepoint nothing is inferred and nothing written.
func CheckTxnStatus(v View, r CheckTxnStatusRequest) (Result, []Mutation, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, nil, err
	}
	lock, locked := v.Lock(r.Primary)
	if locked && lock.StartTS == r.StartTS {
		return checkPrimaryLock(&r, &lock)
	}
	res, err := outcome(v, r.Primary, r.StartTS)
	if err != nil || res.Status != StatusNotFound {
		return res, nil, err
	}
	// "Not found" is not "rolled back" while the primary's prewrite may still arrive. Below the
	// bound it cannot: the bound refuses it.
	if r.StartTS >= v.Bound() && r.Now < r.MetExpiry && !r.WorkerDead {
		return Result{Status: StatusLive}, nil, nil
	}
	var e effects
	e.rolledBack(r.Primary, r.StartTS)
	return Result{Status: StatusRolledBack}, e.list, nil
}

// checkPrimaryLock decides by the primary's lock: while it exists, no record counts.
func checkPrimaryLock(r *CheckTxnStatusRequest, lock *Lock) (Result, []Mutation, error) {
	if lock.Token != 0 {
		return Result{Status: StatusLocked, Locks: []LockInfo{met(r.Primary, *lock)}}, nil, nil
	}
	// Rolling back a secondary on its own would break the transaction in two, should its
	// primary be committed.
	if lock.Primary != r.Primary {
		return Result{}, nil, fmt.Errorf("%w: status request at a cell that is not the primary",
			ErrInvalid)
	}
	if lock.async() {
		return Result{Status: StatusLive, Locks: []LockInfo{met(r.Primary, *lock)}}, nil, nil
	}
	if r.Now < lock.Expiry && !r.WorkerDead {
		return Result{Status: StatusLive, Locks: []LockInfo{met(r.Primary, *lock)}}, nil, nil
	}
	var e effects
	e.rollback(r.Primary, lock)
	return Result{Status: StatusRolledBack}, e.list, nil
}

// Heartbeat moves the primary lock's expiry forward, never back (§2.2: workers
// periodically update the wall time).
//
//   - StatusOK: the lock is there. StatusCommitted, StatusRolledBack, StatusNotFound,
//     StatusUnknown: it is not.
func Heartbeat(v View, r HeartbeatRequest) (Result, []Mutation, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, nil, err
	}
	lock, locked := v.Lock(r.Primary)
	if !locked || !lock.heldBy(r.StartTS) {
		res, err := outcome(v, r.Primary, r.StartTS)
		return res, nil, err
	}
	if lock.Primary != r.Primary {
		return Result{}, nil, fmt.Errorf("%w: heartbeat at a cell that is not the primary",
			ErrInvalid)
	}
	// Late heartbeats arrive in any order.
	if r.Expiry <= lock.Expiry {
		return Result{}, nil, nil
	}
	lock.Expiry = r.Expiry
	return Result{}, []Mutation{{Group: GroupLock, Cell: r.Primary, Lock: &lock}}, nil
}
