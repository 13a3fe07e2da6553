package mvcc

import (
	"bytes"
	"fmt"
)

// RawWrite writes raw cells if every condition holds: compare and set, without timestamps
// or locks. Meta keeps its own records so. Writes take effect in order, so that the last
// one to a cell counts.
//
//   - StatusOK: written. StatusMismatch: the condition on ConflictAt does not hold; no effects.
func RawWrite(v View, r RawWriteRequest) (Result, []Mutation, error) {
	for i := range r.Conditions {
		c := &r.Conditions[i]
		value, there, err := v.Raw(c.Cell)
		if err != nil {
			return Result{}, nil, err
		}
		// An empty value is a value: absence is a condition of its own.
		if there == c.Absent || (there && !bytes.Equal(value, c.Value)) {
			return Result{Status: StatusMismatch, ConflictAt: c.Cell}, nil, nil
		}
	}
	list := make([]Mutation, len(r.Writes))
	for i := range r.Writes {
		w := &r.Writes[i]
		list[i] = Mutation{Group: GroupRaw, Cell: w.Cell}
		switch w.Kind {
		case KindPut:
			list[i].Value = w.Value
		case KindDelete:
			list[i].Delete = true
		default:
			return Result{}, nil, fmt.Errorf("%w: unknown kind of raw write %d", ErrInvalid, w.Kind)
		}
	}
	return Result{}, list, nil
}
