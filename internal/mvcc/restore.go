package mvcc

import "fmt"

// Restore writes records of a backup as they were: with the timestamps of the
// transactions that committed them, and without a notification. It may be repeated.
//
//   - StatusOK: every cell has its record. StatusMismatch: the cell at ConflictAt has a lock
//     or another record: another client writes here; CommitTS is set if the cell is deleted, which
//     is history that was not collected yet. StatusNotifyOnly: the column at
//     ConflictAt is weak, and can have no value. No effects.
func Restore(v View, r RestoreRequest, lim Limits) (Result, []Mutation, error) {
	var e effects
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.StartTS == 0 || rec.StartTS >= rec.CommitTS || rec.CommitTS == MaxTimestamp {
			return Result{}, nil, fmt.Errorf("%w: a record with start timestamp %d committed at %d", ErrInvalid,
				rec.StartTS, rec.CommitTS)
		}
		if i > 0 && r.Records[i-1].Cell.Compare(rec.Cell) >= 0 {
			return Result{}, nil, fmt.Errorf("%w: cells out of order: send the records by cell, "+
				"each cell once", ErrInvalid)
		}
		if weak(v, rec.Cell) {
			return Result{Status: StatusNotifyOnly, ConflictAt: rec.Cell}, nil, nil
		}
		newest, there, err := v.Newest(rec.Cell)
		if err != nil {
			return Result{}, nil, err
		}
		_, locked := v.Lock(rec.Cell)
		switch {
		case there && newest.StartTS == rec.StartTS && newest.CommitTS == rec.CommitTS && !locked:
			continue // an earlier copy of this request has written it
		case there && newest.Kind == KindDelete && !locked:
			return Result{Status: StatusMismatch, ConflictAt: rec.Cell, CommitTS: newest.CommitTS}, nil, nil
		case there || locked:
			return Result{Status: StatusMismatch, ConflictAt: rec.Cell}, nil, nil
		}
		w := &Write{CommitTS: rec.CommitTS, StartTS: rec.StartTS, Kind: KindPut}
		e.value(rec.Cell, rec.StartTS, &w.Long, &w.Value, rec.Value, lim.Inline)
		e.list = append(e.list, Mutation{Group: GroupWrite, Cell: rec.Cell, Write: w})
	}
	return Result{}, e.list, nil
}
