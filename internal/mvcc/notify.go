package mvcc

import (
	"unicode/utf8"

	"github.com/percolator-go/percolator/internal/broken"
)

// maxNotifyError is how many bytes of a failed run's error are kept.
const maxNotifyError = 1 << 10

// NotifyCells marks cells of weak columns dirty at once (§2.4, invariant 12). It conflicts with nothing and may be
// repeated: an entry never goes back.
//
//   - StatusOK: every cell has an N entry of TS or newer. StatusNotifyOnly: the column at ConflictAt is not weak.
func NotifyCells(v View, r NotifyRequest) (Result, []Mutation, error) {
	if err := checkStart(r.TS); err != nil {
		return Result{}, nil, err
	}
	var e effects
	for _, c := range r.Cells {
		if !weak(v, c) {
			return Result{Status: StatusNotifyOnly, ConflictAt: c}, nil, nil
		}
		if err := e.notify(v, c, r.TS); err != nil {
			return Result{}, nil, err
		}
	}
	return Result{CommitTS: r.TS}, e.list, nil
}

// ClearNotify removes the cell's N entry unless it is newer than UpTo: a change after the run that clears is not
// forgotten (invariant 12). The status is always StatusOK; CommitTS is the timestamp of the entry that stays, or 0.
func ClearNotify(v View, r ClearNotifyRequest) (Result, []Mutation, error) {
	n, there, err := v.Notification(r.Cell)
	if err != nil || !there {
		return Result{}, nil, err
	}
	// The run read its snapshot at UpTo: it has seen every change up to there, and none above.
	if n.TS > r.UpTo && !broken.ClearAlways {
		return Result{CommitTS: n.TS}, nil, nil
	}
	return Result{}, []Mutation{{Group: GroupNotify, Cell: r.Cell, Delete: true}}, nil
}

// FailNotify records a failed run of the change at TS; an entry that has been renewed or cleared since is left alone.
// Copies that come late do not count back: Attempts never falls, and what is parked stays parked, except that Attempts 0
// starts over. The status is always StatusOK.
func FailNotify(v View, r FailNotifyRequest) (Result, []Mutation, error) {
	n, there, err := v.Notification(r.Cell)
	if err != nil || !there || n.TS != r.TS {
		return Result{}, nil, err
	}
	// Answers of two workers, or copies, may cross.
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
