package scanner

import (
	"sync"
	"time"
)

const (
	// maxRechecks limits the requests per second for tablets that the survey reports clean, by one
	// node's scanners or by its sweeper. One request of a scanner covers all columns of a tablet.
	maxRechecks = 2
	// sweepRechecks is the factor by which the sweeper is slower than the scanners. Its
	// information is no older than the tablet's last turn, and a transaction that encounters a
	// lock resolves it anyway.
	sweepRechecks = 15
)

// rechecks selects tablets that are walked although the survey reports them clean, one after the
// other. A node's scanners share one; it is safe for concurrent use.
type rechecks struct {
	every time.Duration // time in which a single node walks all tablets once

	mu   sync.Mutex
	last time.Time
	due  float64
	next int
}

// take returns the tablets that are due: count of them starting at first, modulo their number.
// nodes share the work; a tablet costs up to walks requests.
func (r *rechecks) take(now time.Time, tablets, nodes, walks int) (first, count int) {
	if tablets == 0 {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := now.Sub(r.last)
	if r.last.IsZero() {
		passed = 0
	}
	r.last = now
	perSecond := min(float64(tablets)/(r.every.Seconds()*float64(max(nodes, 1))),
		maxRechecks/float64(max(walks, 1)))
	// After a long pause not all tablets are due at once.
	r.due = min(r.due+perSecond*max(passed, 0).Seconds(), maxRechecks, float64(tablets))
	first, count = r.next%tablets, int(r.due)
	r.due -= float64(count)
	r.next = (first + count) % tablets
	return first, count
}
