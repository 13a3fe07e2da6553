package scanner

import (
	"sync"
	"time"
)

const (
	// maxRechecks bounds the walks a second of what the survey says is empty, by one
	// node's scanners or by its sweeper.
	maxRechecks = 4
	// sweepRechecks is how many times longer the sweeper takes than the scanners: what it
	// believes is no older than the tablet's last turn, and whoever meets a lock resolves
	// it.
	sweepRechecks = 15
)

// rechecks says which tablets are walked although the survey rules them out: one after
// the other, so that all have their turn. A node's scanners share one. Safe for
// concurrent use.
type rechecks struct {
	every time.Duration // for all tablets, by one node alone

	mu   sync.Mutex
	last time.Time
	due  float64
	next int
}

// take gives the tablets that are due: of so many, count from first on, around the end.
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
