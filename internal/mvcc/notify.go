package mvcc

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// maxNotifyError is the number of bytes kept of a failed run's error.
const maxNotifyError = 1 << 10

// NotifyCells marks cells of weak columns dirty at once for all their observers (§2.4), or, as a
// replay, notify cells of observers of any kind, each for its observer alone. It conflicts with
// nothing and may be repeated: the timestamp of an entry never decreases.
//
//   - StatusOK: every notify cell has an N entry of TS or newer. StatusNotifyOnly: the column at
//     ConflictAt is not weak or, in a replay, ConflictAt is no observer's notify cell.
func NotifyCells(v View, r NotifyRequest) (Result, []Mutation, error) {
	if err := checkStart(r.TS); err != nil {
		return Result{}, nil, err
	}
	var e effects
	for _, c := range r.Cells {
		var err error
		switch {
		case r.Replay && !notifiable(v, c), !r.Replay && !weak(v, c):
			return Result{Status: StatusNotifyOnly, ConflictAt: c}, nil, nil
		case r.Replay:
			err = e.replay(v, c, r.TS, r.Origin)
		default:
			err = e.notifyWeak(v, c, r.TS, r.Origin)
		}
		if err != nil {
			return Result{}, nil, err
		}
	}
	return Result{CommitTS: r.TS}, e.list, nil
}

// notifiable reports whether the cell is the notify cell of an observer that is not retired.
func notifiable(v View, c Cell) bool {
	if c.Class == ClassData {
		return v.Observed(c.Table, c.Column).Plain
	}
	w, known := v.AckOf(c.Table, c.Column)
	return known && w.Own && slices.Contains(v.Observed(c.Table, w.Column).Own, c.Column)
}

// replay marks the notify cell for one more run and resets failures and parking. An entry that is
// as new stands for a change after the request for the replay, or for the replay itself: its run
// covers both, and a late duplicate must not unpark failures since.
func (e *effects) replay(v View, c Cell, ts, origin Timestamp) error {
	n, ok, err := v.Notification(c)
	if err != nil || (ok && n.TS >= ts) {
		return err
	}
	n.changed(ts, origin)
	e.list = append(e.list, Mutation{
		Group: GroupNotify, Cell: c, Notify: &Notify{TS: ts, Replay: true, Origins: n.Origins},
	})
	return nil
}

// notifyWeak marks the weak cell, for a committed transaction, for each of its observers. If all
// observers have been retired since, it does nothing: an entry that no observer clears would wait
// for a later observer of the column.
func (e *effects) notifyWeak(v View, c Cell, ts, origin Timestamp) error {
	if c.Class != ClassData {
		return nil
	}
	how := v.Observed(c.Table, c.Column)
	if how.How != ObservedWeak {
		return nil
	}
	return e.notifyAll(v, c, how, ts, origin)
}

// ClearNotify removes the notify cell's N entry unless it is newer than UpTo (a change after the
// run is not forgotten), its origin is older than the run's, or it is another observer's. Of an
// entry that is newer it may remove the origins that the run has seen. The status is always
// StatusOK; CommitTS is the timestamp of the named observer's entry if it stays, else 0.
func ClearNotify(v View, r ClearNotifyRequest) (Result, []Mutation, error) {
	var e effects
	if foreign(v, r.Cell, r.Observer) {
		e.end(r.Cell.Table, r.Origin, r.Ended)
		return e.cleared(0), nil, nil
	}
	if err := e.clear(v, &r); err != nil {
		return Result{}, nil, err
	}
	return e.cleared(e.leftTS), e.list, nil
}

// foreign reports whether the notify cell is known to be another observer's than the named one's. A
// request of a process that has missed that its observer was retired may name such a cell.
func foreign(v View, c Cell, observer string) bool {
	if observer == "" {
		return false
	}
	if c.IsAck() {
		return c.Column != observer
	}
	of := v.Observed(c.Table, c.Column).PlainOf
	return of != "" && of != observer
}

// cleared returns the result of an operation that may have cleared notifications.
func (e *effects) cleared(commitTS Timestamp) Result {
	return Result{CommitTS: commitTS, Ended: e.ended, Left: e.left, LeftTS: e.leftTS}
}

// clear adds the effects of ClearNotify, and records in e the ended run and a notification that stays.
func (e *effects) clear(v View, r *ClearNotifyRequest) error {
	n, there, err := v.Notification(r.Cell)
	if err != nil {
		return err
	}
	if !there { // another run may have cleared it
		e.end(r.Cell.Table, r.Origin, r.Ended)
		return nil
	}
	e.end(r.Cell.Table, min(n.Origin(), cmp.Or(r.Origin, MaxTimestamp)), r.Ended)
	switch {
	// A weak notification with a timestamp before the run may have arrived after it: the run's effects
	// were not caused by that notification.
	case n.Origin() < r.Origin:
	// The run read its snapshot at UpTo: it has seen every change up to there, and none above.
	case n.TS <= r.UpTo:
		e.list = append(e.list, Mutation{Group: GroupNotify, Cell: r.Cell, Delete: true})
		return nil
	case n.covered(r.UpTo):
		e.list = append(e.list, Mutation{Group: GroupNotify, Cell: r.Cell, Notify: &n})
	}
	e.leave(r.Cell, n.TS)
	return nil
}

// leave records for the Result that the cell stays dirty, by a notification of the timestamp.
func (e *effects) leave(c Cell, ts Timestamp) {
	e.left, e.leftTS = append(e.left, c), max(e.leftTS, ts)
}

// end records the end of a run, unless its origin or end is 0. The cells of a batch share one
// record.
func (e *effects) end(table TableID, origin, end Timestamp) {
	if origin == 0 || end == 0 {
		return
	}
	if n := len(e.ended); n > 0 && e.ended[n-1].Table == table && e.ended[n-1].End == end {
		e.ended[n-1].Origin = min(e.ended[n-1].Origin, origin)
		return
	}
	e.ended = append(e.ended, EndedRun{Table: table, Origin: origin, End: end})
}

// acknowledge clears the notifications that the committed acknowledgments are for, as
// ClearNotify does (docs/adr/0048): those of the acknowledgments' observers alone. It comes after
// all other effects of the operation: a cell that the transaction itself has changed stays dirty.
func (e *effects) acknowledge(v View) error {
	if len(e.acks) == 0 {
		return nil
	}
	var own map[Cell]*Notify
	for i := range e.list {
		if m := &e.list[i]; m.Group == GroupNotify {
			if own == nil {
				own = map[Cell]*Notify{}
			}
			own[m.Cell] = m.Notify
		}
	}
	for i := range e.acks {
		a := &e.acks[i]
		w, known := v.AckOf(a.cell.Table, a.cell.Column)
		if !known {
			continue
		}
		r := ClearNotifyRequest{
			Cell: w.NotifyCell(a.cell), UpTo: a.start, Origin: a.origin, Ended: a.commit,
		}
		if n := own[r.Cell]; n != nil {
			e.end(r.Cell.Table, r.Origin, r.Ended)
			e.leave(r.Cell, n.TS)
			continue
		}
		if err := e.clear(v, &r); err != nil {
			return err
		}
	}
	return nil
}

// FailNotify records a failed run of the change at TS. It does not change an entry that has been
// renewed or cleared since, or is another observer's. A late duplicate has no effect: Attempts
// never decreases, and a parked entry stays parked unless Attempts increases, except that Attempts
// 0 resets both. The status is always StatusOK.
func FailNotify(v View, r FailNotifyRequest) (Result, []Mutation, error) {
	n, there, err := v.Notification(r.Cell)
	if err != nil || !there || n.TS != r.TS || foreign(v, r.Cell, r.Observer) {
		return Result{}, nil, err
	}
	// Requests of two workers, or copies of one request, may arrive in any order.
	stale := r.Attempts < n.Attempts || (r.Attempts == n.Attempts && n.ParkedTS != 0)
	if stale && r.Attempts != 0 {
		return Result{}, nil, nil
	}
	n.Attempts, n.ParkedTS, n.Error = r.Attempts, r.ParkedTS, cut(r.Error, maxNotifyError)
	return Result{}, []Mutation{{Group: GroupNotify, Cell: r.Cell, Notify: &n}}, nil
}

// cut shortens text to at most limit bytes, at the beginning of a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
