package mvcc

// effects collects the mutations of one operation. Its methods are shared by the operations: each
// adds the complete mutations of one step of the protocol on one cell.
type effects struct {
	list []Mutation

	clears bool       // committed acknowledgments are added to acks, to clear their notifications
	acks   []ack      // the committed acknowledgments
	ended  []EndedRun // for Result.Ended
	left   []Cell     // for Result.Left
	leftTS Timestamp  // for Result.LeftTS
}

// ack is an acknowledgment that is committed.
type ack struct {
	cell                  Cell
	start, commit, origin Timestamp
}

// prewrite locks the cell (Figure 6 lines 36 to 38). The mutation keeps lock, which
// the caller must not change afterwards.
func (e *effects) prewrite(c Cell, lock *Lock, value []byte, inline int) {
	e.value(c, lock.StartTS, &lock.Long, &lock.Value, value, inline)
	e.list = append(e.list, Mutation{Group: GroupLock, Cell: c, Lock: lock})
}

// value places a value: in the record if it is short, else in D under the start timestamp.
func (e *effects) value(c Cell, start Timestamp, long *bool, inlined *[]byte, value []byte,
	inline int) {
	if len(value) <= inline {
		*inlined = value
		return
	}
	*long = true
	e.list = append(e.list, Mutation{Group: GroupData, Cell: c, TS: start, Value: value})
}

// locked leaves w as the cell's newest committed lock, in place of an older one. Readers and
// observers never see it.
func (e *effects) locked(c Cell, w *Write) {
	e.list = append(e.list, Mutation{Group: GroupLocked, Cell: c, Write: w})
}

// unlock erases the cell's lock.
func (e *effects) unlock(c Cell) {
	e.list = append(e.list, Mutation{Group: GroupLock, Cell: c, Delete: true})
}

// write makes w the newest record, moves the one before it to H, and marks an observed cell dirty,
// all in the same mutations (Figure 6 lines 55 to 57). origin is the transaction's origin
// (origin.go); 0 means its own commit.
func (e *effects) write(v View, c Cell, w, previous *Write, origin Timestamp) error {
	if previous != nil {
		e.list = append(e.list, Mutation{
			Group: GroupHistory, Cell: c, TS: previous.CommitTS, Write: previous,
		})
	}
	e.list = append(e.list, Mutation{Group: GroupWrite, Cell: c, Write: w})
	if e.clears && c.IsAck() && w.Kind == KindPut {
		e.acks = append(e.acks, ack{c, w.StartTS, w.CommitTS, origin})
	}
	if c.Class != ClassData {
		return nil
	}
	how := v.Observed(c.Table, c.Column)
	if how.How != ObservedStrong {
		return nil
	}
	return e.notifyAll(v, c, how, w.CommitTS, origin)
}

// notifyAll raises the N entry of each observer of the observed cell c to ts.
func (e *effects) notifyAll(v View, c Cell, how Observation, ts, origin Timestamp) error {
	if how.Plain {
		if err := e.notify(v, c, ts, origin); err != nil {
			return err
		}
	}
	for _, name := range how.Own {
		own := Cell{Table: c.Table, Class: ClassAck, Row: c.Row, Column: name}
		if err := e.notify(v, own, ts, origin); err != nil {
			return err
		}
	}
	return nil
}

// notify raises the notify cell's N entry to ts. A newer change resets the count of failures and
// unparks; a pending replay stays pending. In an entry that is already as new, only the origins may
// change.
func (e *effects) notify(v View, c Cell, ts, origin Timestamp) error {
	old, ok, err := v.Notification(c)
	if err != nil {
		return err
	}
	now := old
	now.changed(ts, origin)
	// Commits of intents reach the cell in any order, and copies of any commit may be late.
	if ok && old.TS >= ts {
		if now.Origins == old.Origins {
			return nil
		}
	} else {
		now.Attempts, now.ParkedTS, now.Error = 0, 0, ""
	}
	e.list = append(e.list, Mutation{Group: GroupNotify, Cell: c, Notify: &now})
	return nil
}

// rollback erases the lock on the cell, with its value, and leaves a rollback record.
func (e *effects) rollback(c Cell, lock *Lock) {
	e.unlock(c)
	if lock.Long {
		e.list = append(e.list, Mutation{Group: GroupData, Cell: c, TS: lock.StartTS, Delete: true})
	}
	e.rolledBack(c, lock.StartTS)
}

// rolledBack leaves the rollback record.
func (e *effects) rolledBack(c Cell, start Timestamp) {
	e.list = append(e.list, Mutation{Group: GroupRollback, Cell: c, TS: start})
}

// dropIntent erases the weak intent of transaction start.
func (e *effects) dropIntent(c Cell, start Timestamp) {
	e.list = append(e.list, Mutation{Group: GroupIntent, Cell: c, TS: start, Delete: true})
}
