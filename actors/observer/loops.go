package observer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Loops: rows that set themselves off. A loop is a run that was caused by an earlier run of the same
// observer for the same cell, directly or through runs of other observers. After Config.LoopRuns
// such runs within loopWindow the next ones wait, each twice as long as the last, up to loopPauseMax
// (docs/adr/0058). Nothing is dropped, and a change that the row did not cause does not wait.
//
// A change is written by the transaction whose start timestamp its record has. The type loops keeps
// the recent runs of this process by their start timestamps, so it finds the run that wrote a
// change, the change for which that run was started, and so on.

const (
	// loopWindow is the period in which LoopRuns runs make a loop.
	loopWindow = 10 * time.Second
	// loopPause is the first pause, and loopPauseMax the longest.
	loopPause, loopPauseMax = 100 * time.Millisecond, 10 * time.Second
	// loopHops limits the number of runs between two runs of one row. loopVisits limits the runs
	// that are visited to find them, which may be many, since a batch runs for many changes.
	loopHops, loopVisits = 8, 64
	// recentRuns limits the start timestamps by which runs are known, maxLoops the slowed rows.
	recentRuns, maxLoops = 1 << 13, 256
)

// loopKey identifies the runs of a row.
type loopKey struct {
	obs  *registeredObserver
	cell mvcc.Cell
}

// caused is a run with its cause. The mutex of its loops guards the fields from pause on.
type caused struct {
	key   loopKey
	start mvcc.Timestamp
	cause mvcc.Timestamp // start timestamp of the transaction that wrote the change
	at    time.Time      // when it began
	runs  int            // runs of the row caused by its own effects since first, this one included
	first time.Time
	pause time.Duration // pause before the row's next run by its own effects; 0: none
	cycle string        // the loop's observers, joined by arrows, if pause > 0
	// Set only in the newest run of a slowed row, because recent may drop the row's runs during a
	// pause. awaits is the cause of the run that waits for the end of the pause; prev is the run
	// before this one, which is needed again if this run is retried.
	awaits mvcc.Timestamp
	prev   *caused
}

// loops finds the rows of a process that set themselves off. Its methods may be called concurrently.
type loops struct {
	limit int // LoopRuns; 0 or less: loops are not detected

	mu     sync.Mutex
	recent map[mvcc.Timestamp][]*caused // by start timestamp; a batch has several
	ring   []mvcc.Timestamp             // the keys of recent; the oldest is at next once it is full
	next   int
	slowed map[loopKey]*caused // the newest run of each row that is slowed
}

func newLoops(limit int) *loops {
	return &loops{
		limit: limit, recent: map[mvcc.Timestamp][]*caused{}, slowed: map[loopKey]*caused{},
	}
}

// before returns the last run of the row from which the cause descends, and the observers from it
// to the cause; nil means there is none.
func (l *loops) before(key loopKey, cause mvcc.Timestamp) (last *caused, path []string) {
	switch s := l.slowed[key]; {
	case s == nil:
	case s.awaits == cause:
		return s, nil
	case s.cause == cause:
		return s.prev, nil
	}
	type visit struct {
		start mvcc.Timestamp
		path  []string
	}
	queue := []visit{{start: cause}}
	for n := 0; n < len(queue) && n < loopVisits; n++ {
		v := queue[n]
		for _, c := range l.started(v.start) {
			if c.key == key {
				return c, v.path
			}
			if len(v.path) < loopHops {
				queue = append(queue, visit{c.cause, append([]string{c.key.obs.spec.Name}, v.path...)})
			}
		}
	}
	return nil, nil
}

// started returns the known runs with the start timestamp.
func (l *loops) started(start mvcc.Timestamp) []*caused {
	if found := l.recent[start]; found != nil {
		return found
	}
	for _, c := range l.slowed { // few
		if c.start == start {
			return []*caused{c}
		}
	}
	return nil
}

// left returns the remaining wait of a run for a change with the cause.
func (l *loops) left(key loopKey, cause mvcc.Timestamp, now time.Time) time.Duration {
	if l == nil || l.limit <= 0 || cause == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slowed[key] == nil {
		return 0
	}
	last, _ := l.before(key, cause)
	if last == nil {
		return 0
	}
	last.awaits = cause
	return max(0, last.pause-now.Sub(last.at))
}

// began records a run with the start timestamp start that is about to call the user's function. cause
// is the start timestamp of the transaction whose change it runs for; with 0 it records nothing. If
// this run completes a loop, so that the row's next run is delayed, began returns the loop's
// observers, joined by arrows.
func (l *loops) began(key loopKey, start, cause mvcc.Timestamp, now time.Time) (cycle string) {
	if l == nil || l.limit <= 0 || cause == 0 {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &caused{key: key, start: start, cause: cause, at: now, first: now}
	last, path := l.before(key, cause)
	switch {
	case last == nil:
		delete(l.slowed, key) // a change from outside
	case last.pause > 0:
		c.runs, c.first, c.cycle, c.pause = last.runs+1, last.first, last.cycle, min(2*last.pause, loopPauseMax)
	case now.Sub(last.first) < loopWindow:
		c.runs, c.first = last.runs+1, last.first
		if c.runs >= l.limit {
			name := key.obs.spec.Name
			c.cycle, c.pause = strings.Join(slices.Concat([]string{name}, path, []string{name}), " → "), loopPause
			cycle = c.cycle
		}
	}
	if c.pause > 0 {
		c.prev, last.prev = last, nil
		l.slow(c)
	}
	if _, batch := l.recent[start]; !batch {
		if len(l.ring) < recentRuns {
			l.ring = append(l.ring, start)
		} else {
			delete(l.recent, l.ring[l.next])
			l.ring[l.next], l.next = start, (l.next+1)%recentRuns
		}
	}
	l.recent[start] = append(l.recent[start], c)
	return cycle
}

// slow records the newest run of a slowed row. If there are too many, it drops the row that has
// been idle longest.
func (l *loops) slow(c *caused) {
	if l.slowed[c.key] == nil && len(l.slowed) >= maxLoops {
		oldest := slices.MinFunc(slices.Collect(maps.Values(l.slowed)), func(a, b *caused) int {
			return cmp.Compare(a.at.UnixNano(), b.at.UnixNano())
		})
		delete(l.slowed, oldest.key)
	}
	l.slowed[c.key] = c
}

// rows returns the slowed rows of an observer with their cycles. It forgets the rows, of any
// observer, whose last run began more than twice their pause plus 1 s ago.
func (l *loops) rows(obs *registeredObserver, now time.Time) map[string]*caused {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]*caused{}
	for key, c := range l.slowed {
		switch {
		case now.Sub(c.at) > 2*c.pause+time.Second:
			delete(l.slowed, key)
		case key.obs == obs:
			found[key.cell.Row] = c
		}
	}
	return found
}
