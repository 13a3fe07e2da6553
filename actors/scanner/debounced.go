package scanner

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// debounced is one scanner's state for a column whose observer has a debounce. Cells within the
// debounce are skipped: a dispatcher that received a hint has them, or they are submitted after the
// debounce. But a cell that keeps changing, and that no dispatcher has, needs a dispatcher to limit
// its delay. Therefore a turn of the scanner submits all cells once in each debounce period, and at
// least every handOutEvery. It belongs to the scanner's goroutine. A column without a debounce has
// a nil *debounced, of which only the method leaves may be called.
type debounced struct {
	rest time.Duration
	all  bool      // this turn submits all cells
	next time.Time // when the next turn submits all cells
}

// handOutEvery is the maximum interval between turns that submit all cells.
const handOutEvery = time.Minute

// turn starts a turn of the scanner.
func (d *debounced) turn(now time.Time) {
	if d.all = !now.Before(d.next); d.all {
		d.next = now.Add(min(d.rest, handOutEvery))
	}
}

// leaves reports whether the scanner skips a cell with the notification for now. It does not if a
// run has failed, or if the change is in the future, by a clock behind the oracle's: no clock may
// prevent a cell from being found.
func (d *debounced) leaves(n *mvcc.Notify, nowMillis int64) bool {
	if d == nil || d.all {
		return false
	}
	age := nowMillis - n.TS.Millis()
	return n.Attempts == 0 && age >= 0 && age < d.rest.Milliseconds()
}
