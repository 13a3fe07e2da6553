package observer

import (
	"maps"
	"time"
)

const (
	// frequentWindow is the period over which the runs of one row are counted; frequentRuns in
	// one window suggest a loop: an observer that writes the column it observes makes thousands.
	frequentWindow = 10 * time.Second
	frequentRuns   = 200
	// frequentRows limits the rows counted at once.
	frequentRows = 64
	// frequentQuiet is the minimum interval between two warnings about one observer.
	frequentQuiet = time.Minute
)

// frequent finds the rows that an observer runs for most often. It counts runs by row within a
// window, in a bounded number of counters (Misra and Gries): a row with more than one in
// frequentRows+1 of all runs has a counter, which is low by at most that fraction of all runs. It
// belongs to the dispatcher.
type frequent struct {
	began  time.Time      // start of the window
	counts map[string]int // in this window
	last   map[string]int // rows with at least frequentRuns runs in the previous window
	warned time.Time
}

// add counts a run, and reports whether to log a warning about its row now.
func (f *frequent) add(row string, now time.Time) (warn bool) {
	if f.counts == nil || now.Sub(f.began) >= frequentWindow {
		f.rotate(now)
	}
	// No counter is free: this run decrements every counter. Rows with few runs thereby lose
	// their counters; those with many lose little.
	if _, counted := f.counts[row]; !counted && len(f.counts) >= frequentRows {
		for other := range f.counts {
			if f.counts[other]--; f.counts[other] <= 0 {
				delete(f.counts, other)
			}
		}
		return false
	}
	f.counts[row]++
	// Equal, not more: each row is reported when it passes the bound, not on every run.
	if f.counts[row] != frequentRuns || (!f.warned.IsZero() && now.Sub(f.warned) < frequentQuiet) {
		return false
	}
	f.warned = now
	return true
}

// undo subtracts a counted run.
func (f *frequent) undo(row string) {
	if f.counts[row] > 0 {
		f.counts[row]--
	}
}

// rotate starts a new window.
func (f *frequent) rotate(now time.Time) {
	f.last = map[string]int{}
	// A window that ended long ago is not the previous one: nothing has run since.
	if now.Sub(f.began) < 2*frequentWindow {
		for row, n := range f.counts {
			if n >= frequentRuns {
				f.last[row] = n
			}
		}
	}
	f.began, f.counts = now, make(map[string]int, frequentRows)
}

// rows returns the rows with at least frequentRuns runs in this window or in the previous one, with
// the larger of their two counts.
func (f *frequent) rows(now time.Time) map[string]int {
	// The window may have ended without a further run, and add rotates it only on a run.
	if f.counts != nil && now.Sub(f.began) >= frequentWindow {
		f.rotate(now)
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
