package mvcc

import (
	"cmp"
	"slices"
)

// maxBlocking is the maximum number of locks that an answer to Changes names.
const maxBlocking = 16

// ChangesRequest reads the changes of a span in (Since, At].
type ChangesRequest struct {
	Span    Span
	Columns []string // none: all data columns
	Since   Timestamp
	After   *Cell // leaves out the changes at Since+1 of cells up to After; nil: leaves out none
	// At is the timestamp of the read. The oracle must have issued it before the locks of the View
	// were captured, and after the request arrived.
	At       Timestamp
	MaxBytes int // approximate; at least one change is returned
}

// ChangesResult is the answer to Changes.
type ChangesResult struct {
	Status  Status     // OK or TooOld
	Changes []ReadCell // by commit timestamp, then by cell, including deletes
	More    bool       // the page ends before the last change up to Resolved
	// Resolved: no record of the span with a commit timestamp at or below it will become visible any
	// more, and without More the changes include all of them. At least Since.
	Resolved Timestamp
	Locks    []LockInfo // some of those that keep Resolved below At, without reservations
}

// Changes returns the changes of a span by commit timestamp. recorded contains every data record
// that has become visible with a commit timestamp above Since, in any order; others are ignored. It
// must have been captured in one step with the locks of the View: each commit is either in it or
// still has its lock. It is not changed.
//
// Changes never waits for a lock: the oldest one determines Resolved (docs/adr/0072).
func Changes(v View, r ChangesRequest, recorded []CellWrite) (ChangesResult, error) {
	if r.Since < v.Bound() {
		return ChangesResult{Status: StatusTooOld}, nil
	}
	out := ChangesResult{}
	out.Resolved, out.Locks = resolved(v, &r)
	shown := make([]*CellWrite, 0, len(recorded))
	for i := range recorded {
		c := &recorded[i]
		if c.Write.CommitTS > r.Since && c.Write.CommitTS <= out.Resolved && r.wants(c.Cell) && !r.delivered(c) {
			shown = append(shown, c)
		}
	}
	slices.SortFunc(shown, func(a, b *CellWrite) int {
		if a.Write.CommitTS != b.Write.CommitTS {
			return cmp.Compare(a.Write.CommitTS, b.Write.CommitTS)
		}
		return a.Cell.Compare(b.Cell)
	})
	out.Changes = make([]ReadCell, 0, min(len(shown), r.MaxBytes/cellBytes+1))
	bytes := 0
	for i, c := range shown {
		if i > 0 && bytes >= r.MaxBytes {
			out.More = true
			break
		}
		res, err := readAt(v, c.Cell, c.Write, c.Write.CommitTS)
		if err != nil {
			return ChangesResult{}, err
		}
		bytes += cellBytes + len(c.Cell.Row) + len(c.Cell.Column) + len(res.Value)
		out.Changes = append(out.Changes, ReadCell{
			Cell: c.Cell, Value: res.Value, CommitTS: res.CommitTS, StartTS: res.StartTS, Deleted: res.Deleted,
		})
	}
	return out, nil
}

// resolved returns the greatest timestamp, at least Since, up to which no record of the span can
// become visible any more, and locks that keep it below At. A transaction whose lock is not here
// yet requests its commit timestamp after its prewrites, so after At was issued.
func resolved(v View, r *ChangesRequest) (Timestamp, []LockInfo) {
	at, locks := r.At, []LockInfo(nil)
	for c, l := range v.Locks(r.Span, false) {
		if !r.wants(c) || !l.blocks(r.At) {
			continue
		}
		below := max(l.StartTS, l.CommitsAbove) // the transaction's commit timestamp will be greater
		if least := max(l.CommitTS, l.MinCommitTS); least != 0 {
			below = least - 1
		}
		at = min(at, below)
		if l.Token == 0 && len(locks) < maxBlocking {
			locks = append(locks, met(c, l))
		}
	}
	return max(at, r.Since), locks
}

// wants reports whether the request is for changes of the cell.
func (r *ChangesRequest) wants(c Cell) bool {
	return c.Class == ClassData && c.Table == r.Span.Table && r.Span.Contains(c.Row) &&
		(len(r.Columns) == 0 || slices.Contains(r.Columns, c.Column))
}

// delivered reports whether the page before ended at the change or after it.
func (r *ChangesRequest) delivered(c *CellWrite) bool {
	return r.After != nil && c.Write.CommitTS == r.Since+1 && c.Cell.Compare(*r.After) <= 0
}
