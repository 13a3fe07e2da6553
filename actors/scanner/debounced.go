package scanner

import (
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// debounced is what one scanner does about a column whose observer has a debounce. Cells
// that have not rested yet are left alone: a dispatcher that was hinted at them has them,
// or they are handed out when they have rested. But cells that never rest, and of which
// no dispatcher has heard, need one that counts for how long: so once in each debounce,
// and once a minute if that is longer, a turn of the scanner hands out all. It belongs to
// the scanner's goroutine. The methods of nil are those of a column without a debounce.
type debounced struct {
	rest time.Duration
	all  bool      // this turn hands out all
	next time.Time // from when on a turn hands out all
}

// handOutEvery is how often a turn hands out all at least.
const handOutEvery = time.Minute

// turn begins a turn of the scanner.
func (d *debounced) turn(now time.Time) {
	if d.all = !now.Before(d.next); d.all {
		d.next = now.Add(min(d.rest, handOutEvery))
	}
}

// leaves reports whether the scanner leaves a cell with the notification alone for now. It
// does not if the change is in the future, by a clock that is behind the oracle's: no clock
// may keep a cell from being found.
func (d *debounced) leaves(n *mvcc.Notify, nowMillis int64) bool {
	if d == nil || d.all {
		return false
	}
	age := nowMillis - n.TS.Millis()
	return n.Attempts == 0 && age >= 0 && age < d.rest.Milliseconds()
}
