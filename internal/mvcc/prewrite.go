package mvcc

import "fmt"

// Prewrite locks the cells and leaves the intents of one tablet's part of a transaction:
// all or none (§2.2, Figure 6 lines 27 to 40). Values longer than lim.Inline go to D. A
// request of intents alone is allowed: its primary is elsewhere. If a cell is named
// twice, its last write counts.
//
//   - StatusOK: the locks are there, from now or from an earlier copy. A lock that was
//     there keeps its expiry. MinCommitTS is the greatest one of the locks.
//   - StatusLocked: Locks names every lock of others that was met, reservations (Token !=
//     0) included.
//   - StatusConflict, StatusNotifyOnly: see ConflictAt. StatusTooOld: start_ts is below the bound.
//   - StatusCommitted, StatusRolledBack: the message is a late copy; the transaction is decided.
//   - StatusCommitTSTooLow: MinCommitTS is not above start_ts.
//
// A prewrite of an asynchronous commit fails with ErrInvalid if the transaction has locked some of its
// cells, and others not: the tablet reserves all of them, which would replace the locks.
func Prewrite(v View, r PrewriteRequest, lim Limits) (Result, []Mutation, error) {
	if err := checkPrewrite(r, lim); err != nil {
		return Result{}, nil, err
	}
	switch {
	case r.StartTS < v.Bound():
		return Result{Status: StatusTooOld}, nil, nil
	case r.MinCommitTS != 0 && r.MinCommitTS <= r.StartTS:
		return Result{Status: StatusCommitTSTooLow}, nil, nil
	}
	writes := lastWrites(r.Writes)
	// Two allocations for any number of cells: the mutations, and the locks that they point to.
	e := effects{list: make([]Mutation, 0, len(writes)+len(r.Intents))}
	locks := make([]Lock, len(writes))
	var blocking []LockInfo
	var minCommitTS Timestamp
	own := 0
	for i := range writes {
		w := &writes[i]
		lock, locked := v.Lock(w.Cell)
		if locked && lock.heldBy(r.StartTS) {
			// An earlier copy of this request has locked the cell. The expiry stays: only a
			// heartbeat of a living coordinator moves it. So does MinCommitTS, which others may
			// have seen.
			minCommitTS = max(minCommitTS, lock.MinCommitTS)
			own++
			continue
		}
		if locked && r.MinCommitTS != 0 && lock.reserved(r.StartTS) {
			locked = false // reserved for this prewrite
		}
		res, err := admit(v, w.Cell, r.StartTS, lock, locked)
		if err != nil {
			return Result{}, nil, err
		}
		switch res.Status {
		case StatusOK:
			locks[i] = Lock{
				StartTS: r.StartTS, Primary: r.Primary, Expiry: r.Expiry, Worker: r.Worker,
				Kind: w.Kind, Origin: r.Origin, MinCommitTS: r.MinCommitTS,
			}
			if w.Cell == r.Primary {
				locks[i].Secondaries = r.Secondaries
			}
			minCommitTS = max(minCommitTS, r.MinCommitTS)
			e.prewrite(w.Cell, &locks[i], valueOf(w), lim.Inline)
		case StatusLocked:
			// Continue: the caller can resolve all locks at once, and a conflict at a later cell
			// takes precedence.
			blocking = append(blocking, res.Locks...)
		default:
			return res, nil, nil
		}
	}
	if r.MinCommitTS != 0 && own != 0 && own != len(writes) {
		return Result{}, nil, fmt.Errorf("%w: an asynchronous prewrite of cells of which this transaction has locked "+
			"%d of %d: send each cell in one message", ErrInvalid, own, len(writes))
	}
	res, err := prewriteIntents(v, &r, &e)
	if err != nil || res.Status != StatusOK {
		return res, nil, err
	}
	if len(blocking) > 0 {
		return Result{Status: StatusLocked, Locks: blocking}, nil, nil
	}
	return Result{MinCommitTS: minCommitTS}, e.list, nil
}

// prewriteIntents adds the request's weak intents. They conflict with nothing, but if the
// transaction has a rollback record at an intent's cell, the request is refused.
func prewriteIntents(v View, r *PrewriteRequest, e *effects) (Result, error) {
	for _, c := range r.Intents {
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
		_, there, err := v.Intent(c, r.StartTS)
		if err != nil {
			return Result{}, err
		}
		if !there {
			e.list = append(e.list, Mutation{Group: GroupIntent, Cell: c, TS: r.StartTS,
				Intent: &Intent{Primary: r.Primary, Expiry: r.Expiry, Worker: r.Worker,
					Origin: r.Origin}})
		}
	}
	return Result{}, nil
}

// checkPrewrite refuses what no correct client sends.
func checkPrewrite(r PrewriteRequest, lim Limits) error {
	if err := checkStart(r.StartTS); err != nil {
		return err
	}
	if err := lim.CheckCell(r.Primary); err != nil {
		return err
	}
	if err := checkPrimary(r.Primary, r.Writes); err != nil {
		return err
	}
	if r.MinCommitTS != 0 {
		if err := checkAsync(&r, lim); err != nil {
			return err
		}
	}
	return lim.Check(r.Writes, r.Intents)
}

// checkPrimary refuses a primary that is a lock without a write. Such a cell keeps a record of only
// its newest commit: a later query there would not find the transaction, and a secondary of a
// committed transaction would be rolled back.
func checkPrimary(primary Cell, writes []CellWriteRequest) error {
	for i := range writes {
		if writes[i].Kind == KindLock && writes[i].Cell == primary {
			return fmt.Errorf("%w: the primary, row %q column %q, is a lock without a write",
				ErrInvalid, primary.Row, primary.Column)
		}
	}
	return nil
}

// valueOf returns the value that a write leaves: a delete and a lock have none.
func valueOf(w *CellWriteRequest) []byte {
	if w.Kind != KindPut {
		return nil
	}
	return w.Value
}

// fewWrites is the maximum number of writes for which a pairwise search for duplicates is cheaper
// than a map.
const fewWrites = 16

// lastWrites drops every write that a later one to the same cell overrides. Without
// duplicates, which is the rule, it returns its argument.
func lastWrites(writes []CellWriteRequest) []CellWriteRequest {
	if !hasDuplicates(writes) {
		return writes
	}
	last := make(map[Cell]int, len(writes))
	for i := range writes {
		last[writes[i].Cell] = i
	}
	kept := make([]CellWriteRequest, 0, len(last))
	for i := range writes {
		if last[writes[i].Cell] == i {
			kept = append(kept, writes[i])
		}
	}
	return kept
}

// hasDuplicates reports whether two writes are to the same cell. Clients send them in ascending order
// of their cells.
func hasDuplicates(writes []CellWriteRequest) bool {
	if ascending(writes) {
		return false
	}
	if len(writes) <= fewWrites {
		for i := range writes {
			for j := range i {
				if writes[i].Cell == writes[j].Cell {
					return true
				}
			}
		}
		return false
	}
	seen := make(map[Cell]struct{}, len(writes))
	for i := range writes {
		seen[writes[i].Cell] = struct{}{}
	}
	return len(seen) < len(writes)
}

// ascending reports whether each write is to a later cell than the one before it.
func ascending(writes []CellWriteRequest) bool {
	for i := 1; i < len(writes); i++ {
		if writes[i-1].Cell.Compare(writes[i].Cell) >= 0 {
			return false
		}
	}
	return true
}
