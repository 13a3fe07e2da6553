package observer

import (
	"maps"
	"time"
)

const (
	// frequentWindow is how long runs of one row are added up, frequentRuns how many of
	// them in a window are too many to be meant: an observer that writes the column it
	// observes makes thousands.
	frequentWindow = 10 * time.Second
	frequentRuns   = 200
	// frequentRows bounds the rows that are counted at once.
	frequentRows = 64
	// frequentQuiet is the least time between two warnings about one observer.
	frequentQuiet = time.Minute
)

// frequent finds the rows that an observer runs for again and again. It counts runs by
// row within a window, in a bounded number of counters (Misra and Gries): a row that
// makes up more than one run in frequentRows+1 has a counter, which is at most that part
// of all runs below the truth. It belongs to the dispatcher.
type frequent struct {
	began  time.Time      // of the window
	counts map[string]int // in this window
	last   map[string]int // rows over the bound in the last window
	warned time.Time
}

// add counts a run, and reports whether to warn of its row now.
func (f *frequent) add(row string, now time.Time) (warn bool) {
	if f.counts == nil || now.Sub(f.began) >= frequentWindow {
		f.turn(now)
	}
	// No counter is free: this run is set against one of each row that has a counter. A
	// row with few runs loses its counter that way, and one with many hardly notices.
	if _, counted := f.counts[row]; !counted && len(f.counts) >= frequentRows {
		for other := range f.counts {
			if f.counts[other]--; f.counts[other] <= 0 {
				delete(f.counts, other)
			}
		}
		return false
	}
	f.counts[row]++
	// Equal, not more: each row is warned of when it passes the bound, not with every
	// run.
	if f.counts[row] != frequentRuns || (!f.warned.IsZero() && now.Sub(f.warned) < frequentQuiet) {
		return false
	}
	f.warned = now
	return true
}

// turn begins a new window.
func (f *frequent) turn(now time.Time) {
	f.last = map[string]int{}
	// A window that ended long ago is not the last one: nothing has run since.
	if now.Sub(f.began) < 2*frequentWindow {
		for row, n := range f.counts {
			if n >= frequentRuns {
				f.last[row] = n
			}
		}
	}
	f.began, f.counts = now, make(map[string]int, frequentRows)
}

// rows lists the rows that were run for too often in this window or the last one, with
// how often in the worse of the two.
func (f *frequent) rows(now time.Time) map[string]int {
	// No run may have come since the window ended, and add turns only when one does.
	if f.counts != nil && now.Sub(f.began) >= frequentWindow {
		f.turn(now)
	}
	out := make(map[string]int, len(f.last))
	maps.Copy(out, f.last)
	for row, n := range f.counts {
		if n >= frequentRuns {
			out[row] = max(out[row], n)
		}
	}
	return out
}
