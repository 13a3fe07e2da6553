package mvcc

// Commit turns the transaction's locks on the cells into write records, and its intents
// into notifications (Figure 6 lines 50 to 64). One request is all or nothing: if one
// cell refuses, none changes, which for the request that holds the primary makes the
// primary's the one decision. Within a request each cell is idempotent by itself: one
// that is committed already counts as done, and the others get the commit timestamp
// recorded there. After a StatusUnknown for a secondary, whose record was collected, the
// clients that encounter the locks on the others send ResolveLock, which skips such a cell.
//
//   - StatusOK: committed at CommitTS, which is the recorded one if this is a late copy.
//   - StatusRolledBack: there is a rollback record. StatusNotFound: there is neither lock nor
//     record, and start_ts is not below the safepoint.
//   - StatusUnknown: there is neither lock nor record, and start_ts is below the safepoint.
//   - StatusCommitTSTooLow: ask the oracle for a later one.
//   - StatusLocked: the cell is reserved by this transaction: its one-phase commit, or the prewrite
//     of its asynchronous commit, is in flight.
func Commit(v View, r CommitRequest) (Result, []Mutation, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, nil, err
	}
	res, list, err := commitAt(v, &r)
	if err == nil && res.Status == StatusCommitted {
		// A cell is already committed at another timestamp than requested: all cells get that one,
		// since a transaction has only one commit timestamp.
		r.CommitTS = res.CommitTS
		return commitAt(v, &r)
	}
	return res, list, err
}

// commitAt evaluates Commit at r.CommitTS. StatusCommitted returns another timestamp at which the
// transaction is already committed.
func commitAt(v View, r *CommitRequest) (Result, []Mutation, error) {
	if r.CommitTS <= r.StartTS {
		return Result{Status: StatusCommitTSTooLow}, nil, nil
	}
	e := effects{
		list: make([]Mutation, 0, 3*len(r.Cells)+2*len(r.Intents)), clears: r.Clear,
	}
	records := make([]Write, 2*len(r.Cells))
	for i, c := range r.Cells {
		lock, locked := v.Lock(c)
		var res Result
		var err error
		switch {
		case locked && lock.heldBy(r.StartTS):
			res, err = commitLock(v, c, &lock, r.CommitTS, records[2*i:2*i+2], &e)
		case locked && lock.reserved(r.StartTS):
			res = Result{Status: StatusLocked, Locks: []LockInfo{met(c, lock)}}
		default:
			// No lock of this transaction: a copy of this request or another client has resolved
			// the cell, or the cell was never prewritten.
			res, err = outcome(v, c, r.StartTS)
			if res.Status == StatusCommitted && res.CommitTS == r.CommitTS {
				res = Result{}
			}
		}
		if err != nil || res.Status != StatusOK {
			return res, nil, err
		}
	}
	for _, c := range r.Intents {
		if err := commitIntent(v, c, r.StartTS, r.CommitTS, &e); err != nil {
			return Result{}, nil, err
		}
	}
	if err := e.acknowledge(v); err != nil {
		return Result{}, nil, err
	}
	return e.cleared(r.CommitTS), e.list, nil
}

// commitLock replaces one lock by a write record at commitTS or, without a write, by a record of
// the committed lock. space holds the two records that this may create.
func commitLock(v View, c Cell, lock *Lock, commitTS Timestamp, space []Write,
	e *effects) (Result, error) {
	if commitTS < lock.MinCommitTS { // not the commit timestamp of this asynchronous commit
		return Result{Status: StatusCommitTSTooLow}, nil
	}
	if lock.Kind == KindLock {
		// Every record of the cell is below start_ts: the lock has kept other transactions out
		// since.
		space[0] = Write{CommitTS: commitTS, StartTS: lock.StartTS, Kind: KindLock}
		e.unlock(c)
		e.locked(c, &space[0])
		return Result{}, nil
	}
	newest, ok, err := v.Newest(c)
	if err != nil {
		return Result{}, err
	}
	var previous *Write
	if ok {
		if newest.CommitTS >= commitTS {
			return Result{Status: StatusCommitTSTooLow}, nil
		}
		previous = &space[1]
		*previous = newest
	}
	// The value is not touched: inline it moves from the lock into the record; a long one
	// stays where prewrite put it.
	space[0] = Write{
		CommitTS: commitTS, StartTS: lock.StartTS, Kind: lock.Kind, Long: lock.Long,
		Value: lock.Value,
	}
	e.unlock(c)
	return Result{}, e.write(v, c, &space[0], previous, lock.Origin)
}

// commitIntent turns a weak intent into a notification. One that is gone was resolved before.
func commitIntent(v View, c Cell, start, commitTS Timestamp, e *effects) error {
	intent, there, err := v.Intent(c, start)
	if err != nil || !there {
		return err
	}
	e.dropIntent(c, start)
	return e.notifyWeak(v, c, commitTS, intent.Origin)
}

// ResolveLock applies a decision that the caller has read at the primary: roll forward at
// CommitTS, or, with CommitTS 0, back (§2.2). Cells without this transaction's lock, and intents
// that are gone, are unchanged, so that it may arrive late, twice, or for cells already resolved.
// Reservations are never touched. A lock whose MinCommitTS is above CommitTS is rolled back: the
// decision did not count it, so no correct client has written it.
//
//   - StatusOK: no lock or intent of the transaction is left on the cells, except reservations.
//   - StatusCommitTSTooLow: the decision cannot be this transaction's; no effects.
func ResolveLock(v View, r ResolveLockRequest) (Result, []Mutation, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, nil, err
	}
	if r.CommitTS != 0 && r.CommitTS <= r.StartTS {
		return Result{Status: StatusCommitTSTooLow}, nil, nil
	}
	var e effects
	for _, c := range r.Cells {
		lock, locked := v.Lock(c)
		if !locked || !lock.heldBy(r.StartTS) {
			// The lock is resolved already, or is another transaction's by now: never resolve by
			// the cell alone.
			continue
		}
		if r.CommitTS == 0 || r.CommitTS < lock.MinCommitTS {
			e.rollback(c, &lock)
			continue
		}
		res, err := commitLock(v, c, &lock, r.CommitTS, make([]Write, 2), &e)
		if err != nil || res.Status != StatusOK {
			return res, nil, err
		}
	}
	for _, c := range r.Intents {
		if r.CommitTS != 0 {
			if err := commitIntent(v, c, r.StartTS, r.CommitTS, &e); err != nil {
				return Result{}, nil, err
			}
			continue
		}
		_, there, err := v.Intent(c, r.StartTS)
		if err != nil {
			return Result{}, nil, err
		}
		if there {
			// The rollback record keeps a late copy of the prewrite from bringing the intent back.
			e.dropIntent(c, r.StartTS)
			e.rolledBack(c, r.StartTS)
		}
	}
	return Result{CommitTS: r.CommitTS}, e.list, nil
}
