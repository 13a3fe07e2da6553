package scanner

import (
	"sync"
	"time"
)

const (
	// maxRechecks limits the walks per second of tablets that the survey says are clean, by
	// one node's scanners or by its sweeper.
	maxRechecks = 4
	// sweepRechecks is how many times longer the sweeper takes than the scanners. Its
	// information is no older than the tablet's last turn, and whoever meets a lock resolves
	// it anyway.
	sweepRechecks = 15
)

// rechecks chooses tablets that are walked although the survey says that they are clean, one
// after the other. A node's scanners share one and may use it concurrently.
type rechecks struct {
	every time.Duration // for all tablets, by one node alone

	mu   sync.Mutex
	last time.Time
	due  float64
	next int
}

// take returns which of the tablets are due: count of them from first on, modulo their number.
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
	// After a long pause not all are due at once.
	r.due = min(r.due+perSecond*max(passed, 0).Seconds(), maxRechecks, float64(tablets))
	first, count = r.next%tablets, int(r.due)
	r.due -= float64(count)
	r.next = (first + count) % tablets
	return first, count
}
