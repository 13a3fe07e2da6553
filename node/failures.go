package node

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet"
)

// failures keeps the tablets of this node that have stopped, and opens those anew that
// have panicked: at once the first few times, then after growing pauses. A fault that
// comes back with every opening thus costs an attempt every few minutes, and one that has
// gone leaves no tablet down. After a storage fault a tablet stays stopped: nothing may
// be acknowledged that the store has not taken (design section 10).
//
// Tablets' actors report here and do not wait; an actor of its own has the replicas'
// workers open tablets anew. In flight may be, for each tablet, one pause and one
// opening. why is guarded by mu, since readiness and status read it on any goroutine.
type failures struct {
	root   *actor.RootContext
	pid    *actor.PID
	logger *slog.Logger
	reopen func(tablet uint64, done func(error)) // see replicas.Set

	mu  sync.Mutex
	why map[uint64]error // by tablet

	panics reopenings // the actor's own
}

const (
	// maxReopens is the number of panics after which one tablet is opened anew without a
	// pause.
	maxReopens = 3
	// reopenPause is the first pause, maxReopenPause the longest.
	reopenPause    = time.Minute
	maxReopenPause = 10 * time.Minute
	// reopenMemory is the time without a panic after which those of a tablet are
	// forgotten.
	reopenMemory = time.Hour
)

// reopenings holds the panics of this node's tablets that are not forgotten yet, by
// tablet.
type reopenings map[uint64]*panics

// panics are one tablet's.
type panics struct {
	count int
	last  time.Time
	timer *time.Timer // the opening that waits for its pause to end; nil: none
}

// next counts a panic of the tablet and returns how long to wait until it is opened anew.
// It also forgets the old panics of all tablets, which bounds the map.
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

// stop ends the pauses. A message of a timer that has fired already goes nowhere.
func (r reopenings) stop() {
	for _, p := range r {
		if p.timer != nil {
			p.timer.Stop()
		}
	}
}

// failedTablet tells the actor that a tablet has stopped.
type failedTablet struct {
	id  uint64
	err error
}

// pausedTablet is a failed tablet whose pause has ended.
type pausedTablet struct{ id uint64 }

// newFailures starts the actor; close ends it. reopen is called on the actor's goroutine
// and must not block.
func newFailures(root *actor.RootContext, logger *slog.Logger,
	reopen func(uint64, func(error))) *failures {
	f := &failures{
		root: root, logger: logger, reopen: reopen, why: map[uint64]error{}, panics: reopenings{},
	}
	f.pid = root.Spawn(actor.PropsFromFunc(f.receive))
	return f
}

// close ends the actor and its pauses. Tablets that have stopped stay so.
func (f *failures) close() error { return f.root.StopFuture(f.pid).Wait() }

// add records that a tablet has stopped, and has it opened anew if it has panicked. It
// does not wait.
func (f *failures) add(id uint64, err error) {
	f.mu.Lock()
	// Recorded here, not by the actor: the node must not look ready in between.
	f.why[id] = fmt.Errorf("node: tablet %d has stopped: %w", id, err)
	f.mu.Unlock()
	f.root.Send(f.pid, &failedTablet{id, err})
}

// forget records that a tablet's replica works again, or is destroyed. Its panics still
// count.
func (f *failures) forget(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.why, id)
}

// first returns why the failed tablet with the lowest id does not serve; nil if none has
// failed.
func (f *failures) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.why) == 0 {
		return nil
	}
	return f.why[slices.Min(slices.Collect(maps.Keys(f.why)))]
}

// receive is the actor.
func (f *failures) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *failedTablet:
		f.onFailed(m)
	case *pausedTablet:
		// In the meantime it may have been opened anew or destroyed, or its store may
		// have failed.
		f.mu.Lock()
		why := f.why[m.id]
		f.mu.Unlock()
		if errors.Is(why, tablet.ErrPanic) {
			f.open(m.id)
		}
	case *actor.Stopping:
		f.panics.stop()
	}
}

// onFailed has a tablet that has panicked opened anew, now or after a pause.
func (f *failures) onFailed(m *failedTablet) {
	if !errors.Is(m.err, tablet.ErrPanic) {
		return // a fault of the store: it stays stopped
	}
	pause := f.panics.next(m.id, time.Now())
	if pause == 0 {
		f.open(m.id)
		return
	}
	f.logger.Error("a tablet panics again and again; it is opened anew after a pause", "tablet",
		m.id, "pause", pause)
	f.panics[m.id].timer = time.AfterFunc(pause, func() { f.root.Send(f.pid, &pausedTablet{m.id}) })
}

// open has a tablet started anew from the store. It does not wait; what comes of it is
// only logged, because a tablet that leads or hears its leader calls forget.
func (f *failures) open(id uint64) {
	f.reopen(id, func(err error) {
		if err != nil {
			f.logger.Error("a tablet could not be opened anew", "tablet", id, "error", err)
		}
	})
}
