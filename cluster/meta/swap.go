package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
)

// This file holds the one way in which records of meta change: a conditional write of one
// or more of them. It owns nothing and runs on its caller's goroutine. A copy of a write
// that was given up for lost may still arrive later; its conditions, and values that name
// their writer, make that harmless.

// change is the conditional write of one record: it must have the value old, and gets the
// value value. A nil old means that the record must not exist, a nil value deletes it.
// With keep the condition alone is meant, and value is ignored.
type change struct {
	row        string
	old, value []byte
	keep       bool
}

// swap makes all changes at once if every old value still stands. It returns false if one
// does not.
//
// When an answer was lost the records are read back. If they are as this change makes
// them, it is done: what is written names its writer, or is the same whoever writes it.
// If they are as they were, the change is sent again: should the first copy come later,
// it finds its condition broken. If they are something else, another writer was there,
// before it or after; then false sends the caller to look again, and whatever it does is
// a change of what it finds.
func (m *Meta) swap(ctx context.Context, changes ...change) (bool, error) {
	req := swapRequest(changes)
	for unsure := false; ; unsure = true {
		r, err := m.send(ctx, cluster.MetaTablet, &pb.TabletRequest{Op: req})
		status := r.GetMutation().GetStatus()
		switch {
		case err != nil && !errors.Is(err, route.ErrUnknown):
			return false, fmt.Errorf("meta: write %s: %w", changes[0].row, err)
		case err == nil && status == pb.Status_STATUS_OK:
			return true, nil
		case err == nil && status != pb.Status_STATUS_MISMATCH:
			return false, fmt.Errorf("meta: write %s: unexpected status %v", changes[0].row, status)
		// The one attempt that was made was surely refused. After a lost answer a
		// mismatch may be this change's own earlier copy, so the records are read back.
		case err == nil && !unsure:
			return false, nil
		}
		done, before, readErr := m.readBack(ctx, changes)
		if readErr != nil || done || !before {
			return done, readErr
		}
	}
}

// swapRequest returns the changes as one raw write: all conditions, and the writes of
// those that are more than a condition.
func swapRequest(changes []change) *pb.TabletRequest_RawWrite {
	w := &pb.RawWriteRequest{}
	for _, c := range changes {
		w.Conditions = append(w.Conditions,
			&pb.RawCondition{Cell: metaCell(c.row), Absent: c.old == nil, Value: c.old})
		if c.keep {
			continue
		}
		kind := pb.Kind_KIND_PUT
		if c.value == nil {
			kind = pb.Kind_KIND_DELETE
		}
		w.Writes = append(w.Writes, &pb.CellWrite{
			Cell: metaCell(c.row), Kind: kind, Value: c.value,
		})
	}
	return &pb.TabletRequest_RawWrite{RawWrite: w}
}

// readBack reports how the records stand after a lost answer: done if they are as the
// changes make them, before if they are as they were. Changes that change nothing count
// as before.
func (m *Meta) readBack(ctx context.Context, changes []change) (done, before bool, err error) {
	rows := make([]string, len(changes))
	for i, c := range changes {
		rows[i] = c.row
	}
	now, err := m.getAll(ctx, rows...)
	if err != nil {
		return false, false, err
	}
	// Absent (nil) and empty are different values.
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	done, before = true, true
	for i, c := range changes {
		before = before && same(now[i], c.old)
		done = done && (c.keep || same(now[i], c.value))
	}
	return done && !before, before, nil
}
