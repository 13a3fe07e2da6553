package node

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
)

// failures records this node's failed tablets and reopens those that panicked: the first maxReopens
// times at once, then after pauses that grow up to maxReopenPause, so that a permanent fault costs
// little. After any other error, such as a storage fault, a tablet stays stopped: nothing may be
// acknowledged that the store has not persisted (design section 10).
//
// Tablets' actors report here, and readiness and status read on any goroutine. No method waits,
// since the replicas' workers open the tablets. Each tablet may have one pause and one opening in
// flight.
type failures struct {
	logger *slog.Logger
	reopen func(tablet uint64, done func(error)) // see replicas.Set; it does not wait

	mu     sync.Mutex
	why    map[uint64]error // by tablet
	panics reopenings
	closed bool
}

const (
	// maxReopens is the number of recent panics of a tablet after each of which it is reopened at
	// once. After a further panic it is reopened after a pause.
	maxReopens = 3
	// reopenPause is the first pause, maxReopenPause the longest.
	reopenPause    = time.Minute
	maxReopenPause = 10 * time.Minute
	// reopenMemory is the time without a panic after which a tablet's panics are forgotten.
	reopenMemory = time.Hour
)

// reopenings holds the recent panics of this node's tablets, by tablet.
type reopenings map[uint64]*panics

// panics are the recent panics of one tablet.
type panics struct {
	count int
	last  time.Time
	timer *time.Timer // the pending reopening; nil: none
}

// next counts a panic of the tablet and returns the pause before it is reopened. It also forgets
// old panics of all tablets, which bounds the map.
func (r reopenings) next(tablet uint64, now time.Time) time.Duration {
	for id, p := range r {
		if now.Sub(p.last) >= reopenMemory {
			delete(r, id)
		}
	}
	p := r[tablet]
	if p == nil {
		p = &panics{}
		r[tablet] = p
	}
	p.count++
	p.last = now
	if p.count <= maxReopens {
		return 0
	}
	// Doubled for each panic beyond the first with a pause.
	pause := reopenPause
	for range p.count - maxReopens - 1 {
		if pause *= 2; pause >= maxReopenPause {
			return maxReopenPause
		}
	}
	return pause
}

// newFailures returns failures that opens tablets by reopen.
func newFailures(logger *slog.Logger, reopen func(uint64, func(error))) *failures {
	return &failures{
		logger: logger, reopen: reopen, why: map[uint64]error{}, panics: reopenings{},
	}
}

// close cancels the pauses. From then on stopped tablets stay stopped.
func (f *failures) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, p := range f.panics {
		if p.timer != nil {
			p.timer.Stop()
		}
	}
}

// add records that a tablet has stopped and, if it panicked, reopens it now or after a pause. It does
// not wait.
func (f *failures) add(id uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.why[id] = fmt.Errorf("node: tablet %d has stopped: %w", id, err)
	if f.closed || !errors.Is(err, tablet.ErrPanic) {
		return // the tablet stays stopped
	}
	pause := f.panics.next(id, time.Now())
	if pause == 0 {
		f.openLocked(id)
		return
	}
	f.logger.Error("tablet keeps panicking; reopening it after a pause",
		"tablet", id, "pause", pause)
	f.panics[id].timer = time.AfterFunc(pause, func() { f.resume(id) })
}

// resume reopens a tablet whose pause has ended. It may have been opened or destroyed during the
// pause, or its store may have failed.
func (f *failures) resume(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && errors.Is(f.why[id], tablet.ErrPanic) {
		f.openLocked(id)
	}
}

// openLocked restarts a tablet from the store. A failure is only logged; on success the tablet
// calls forget once it leads or receives from its leader.
func (f *failures) openLocked(id uint64) {
	f.reopen(id, func(err error) {
		if err != nil {
			f.logger.Error("cannot reopen a tablet", "tablet", id, "error", err)
		}
	})
}

// forget records that a tablet's replica works again or was destroyed. Its panics still count.
func (f *failures) forget(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.why, id)
}

// first returns the error of the failed tablet with the lowest id, or nil if none has failed.
func (f *failures) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.why) == 0 {
		return nil
	}
	return f.why[slices.Min(slices.Collect(maps.Keys(f.why)))]
}
