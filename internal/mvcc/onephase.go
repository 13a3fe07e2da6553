package mvcc

import "fmt"

// CheckOnePhase decides whether a whole transaction in one tablet may commit at once. It
// has no effects: the tablet then puts reservations on the cells, asks the oracle for a
// commit timestamp, and calls OnePhaseCommit.
//
//   - StatusOK: go ahead.
//   - StatusLocked: Locks names all locks of others, or only one with a Token and this start
//     timestamp: that is an earlier copy of this very request in flight: join it.
//   - StatusCommitted: an earlier copy is done. StatusConflict, StatusRolledBack,
//     StatusNotifyOnly: permanent.
//   - StatusTooOld: below the bound, and surely not committed. StatusUnknown: below the
//     safepoint.
//
// A client queries the transaction's outcome at the cell of the first write: like a primary, that
// write must not be a KindLock.
func CheckOnePhase(v View, r OnePhaseRequest) (Result, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, err
	}
	if len(r.Writes) > 0 {
		if err := checkPrimary(r.Writes[0].Cell, r.Writes); err != nil {
			return Result{}, err
		}
	}
	var blocking []LockInfo
	for i := range r.Writes {
		c := r.Writes[i].Cell
		lock, locked := v.Lock(c)
		if locked && lock.reserved(r.StartTS) {
			return Result{Status: StatusLocked, Locks: []LockInfo{met(c, lock)}}, nil
		}
		res, err := admitOnePhase(v, c, r.StartTS, lock, locked)
		if err != nil {
			return Result{}, err
		}
		switch res.Status {
		case StatusOK:
		case StatusLocked:
			blocking = append(blocking, res.Locks...)
		default:
			return res, nil
		}
	}
	// A rollback that fenced the transaction may have left its record at a notified cell only.
	for _, c := range r.Notifies {
		if !weak(v, c) {
			return Result{Status: StatusNotifyOnly, ConflictAt: c}, nil
		}
		rolledBack, err := v.RolledBack(c, r.StartTS)
		if err != nil {
			return Result{}, err
		}
		if rolledBack {
			return Result{Status: StatusRolledBack}, nil
		}
	}
	// The transaction has no record here. Below the bound the status states how certain it is that
	// there never was one.
	switch {
	case r.StartTS < v.Safepoint():
		return Result{Status: StatusUnknown}, nil
	case r.StartTS < v.Bound():
		return Result{Status: StatusTooOld}, nil
	case len(blocking) > 0:
		return Result{Status: StatusLocked, Locks: blocking}, nil
	}
	return Result{}, nil
}

// admitOnePhase is admit for a one-phase commit, which may be a copy of one that is done. Below the
// bound only the transaction's own records count, because the history that distinguishes a conflict
// from its own commit may be collected.
func admitOnePhase(v View, c Cell, start Timestamp, lock Lock, locked bool) (Result, error) {
	if start >= v.Bound() {
		return admit(v, c, start, lock, locked)
	}
	res, err := outcome(v, c, start)
	if res.Status == StatusNotFound || res.Status == StatusUnknown {
		return Result{}, err
	}
	return res, err
}

// OnePhaseCommit returns the effects of a transaction that has passed CheckOnePhase and whose cells
// have been reserved since, so that no part of it can have changed; reservations with its own start
// timestamp are ignored. If a cell is named twice, its last write counts.
//
// - StatusOK: committed at CommitTS. StatusCommitted: it was already, at CommitTS; no effects.
//
// - StatusCommitTSTooLow: commitTS is not above start_ts and every commit_ts in the cells.
func OnePhaseCommit(v View, r OnePhaseRequest, commitTS Timestamp,
	lim Limits) (Result, []Mutation, error) {
	if err := checkStart(r.StartTS); err != nil {
		return Result{}, nil, err
	}
	if err := lim.Check(r.Writes, r.Notifies); err != nil {
		return Result{}, nil, err
	}
	if commitTS <= r.StartTS {
		return Result{Status: StatusCommitTSTooLow}, nil, nil
	}
	writes := lastWrites(r.Writes)
	e := effects{list: make([]Mutation, 0, 1+2*len(writes)+len(r.Notifies)), clears: r.Clear}
	records := make([]Write, 2*len(writes))
	for i := range writes {
		res, err := onePhaseWrite(v, &r, &writes[i], commitTS, lim.Inline,
			records[2*i:2*i+2], &e)
		if err != nil || res.Status != StatusOK {
			return res, nil, err
		}
	}
	for _, c := range r.Notifies {
		if err := e.notifyWeak(v, c, commitTS, r.Origin); err != nil {
			return Result{}, nil, err
		}
	}
	if err := e.acknowledge(v); err != nil {
		return Result{}, nil, err
	}
	return e.cleared(commitTS), e.list, nil
}

// onePhaseWrite adds the effects on one cell to e. space holds the two records that they may need.
func onePhaseWrite(v View, r *OnePhaseRequest, w *CellWriteRequest, commitTS Timestamp,
	inline int, space []Write, e *effects) (Result, error) {
	start := r.StartTS
	if lock, ok := v.Lock(w.Cell); ok && !lock.reserved(start) {
		return Result{}, fmt.Errorf("%w: one-phase commit of a cell with a lock that is not "+
			"its own reservation", ErrInvalid)
	}
	if w.Kind == KindLock {
		space[0] = Write{CommitTS: commitTS, StartTS: start, Kind: KindLock}
		e.locked(w.Cell, &space[0])
		return Result{}, nil
	}
	newest, ok, err := v.Newest(w.Cell)
	if err != nil {
		return Result{}, err
	}
	var previous *Write
	if ok {
		// Nothing can have been written since the check, except by an earlier copy of this request.
		if newest.StartTS == start {
			return Result{Status: StatusCommitted, CommitTS: newest.CommitTS}, nil
		}
		if newest.CommitTS >= commitTS {
			return Result{Status: StatusCommitTSTooLow}, nil
		}
		previous = &space[1]
		*previous = newest
	}
	record := &space[0]
	*record = Write{CommitTS: commitTS, StartTS: start, Kind: w.Kind}
	e.value(w.Cell, start, &record.Long, &record.Value, valueOf(w), inline)
	return Result{}, e.write(v, w.Cell, record, previous, r.Origin)
}
