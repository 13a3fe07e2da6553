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

// failures are the tablets of this node that have stopped and do not serve again. A
// tablet that has panicked is opened anew from the store: at once the first few times,
// then after pauses that grow. A fault that comes back with every opening so costs an
// attempt every few minutes, and one that has gone leaves no tablet down. After a storage
// fault a tablet stays stopped: nothing may be acknowledged that the store has not taken
// (design section 10).
//
// Tablets' actors report here and do not wait; an actor of its own has them opened.
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
	// maxReopens is how often one tablet is opened anew at once; after that the pauses begin.
	maxReopens = 3
	// reopenPause is the first pause, maxReopenPause the longest.
	reopenPause    = time.Minute
	maxReopenPause = 10 * time.Minute
	// reopenMemory is how long a tablet must not panic until its panics are forgotten.
	reopenMemory = time.Hour
)

// reopenings are the panics of this node's tablets that are not forgotten yet.
type reopenings map[uint64]*panics

// panics are one tablet's.
type panics struct {
	count int
	last  time.Time
	timer *time.Timer // the opening that waits for its pause to end; nil: none
}

// next notes a panic and returns how long to wait until the tablet is opened anew.
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
	pause := reopenPause
	for range p.count - maxReopens - 1 {
		if pause *= 2; pause >= maxReopenPause {
			return maxReopenPause
		}
	}
	return pause
}

// stop ends the pauses.
func (r reopenings) stop() {
	for _, p := range r {
		if p.timer != nil {
			p.timer.Stop()
		}
	}
}

type failedTablet struct {
	id  uint64
	err error
}

// pausedTablet is a failed tablet whose pause has ended.
type pausedTablet struct{ id uint64 }

func newFailures(root *actor.RootContext, logger *slog.Logger,
	reopen func(uint64, func(error))) *failures {
	f := &failures{
		root: root, logger: logger, reopen: reopen, why: map[uint64]error{}, panics: reopenings{},
	}
	f.pid = root.Spawn(actor.PropsFromFunc(f.receive))
	return f
}

// close ends the actor. What failed stays stopped.
func (f *failures) close() error { return f.root.StopFuture(f.pid).Wait() }

// add notes that a tablet has stopped, and has it opened anew if that may help.
func (f *failures) add(id uint64, err error) {
	f.mu.Lock()
	f.why[id] = fmt.Errorf("node: tablet %d has stopped: %w", id, err)
	f.mu.Unlock()
	f.root.Send(f.pid, &failedTablet{id, err})
}

// forget forgets how a tablet's replica has failed: it works again, or is destroyed.
func (f *failures) forget(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.why, id)
}

// first is why a tablet of this node does not serve, the lowest; nil if all do.
func (f *failures) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.why) == 0 {
		return nil
	}
	return f.why[slices.Min(slices.Collect(maps.Keys(f.why)))]
}

func (f *failures) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *failedTablet:
		f.onFailed(m)
	case *pausedTablet: // it may have been opened anew in the meantime
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

func (f *failures) onFailed(m *failedTablet) {
	if !errors.Is(m.err, tablet.ErrPanic) {
		return
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

// open starts a tablet anew from the store.
func (f *failures) open(id uint64) {
	f.reopen(id, func(err error) {
		if err != nil {
			f.logger.Error("a tablet could not be opened anew", "tablet", id, "error", err)
		}
	})
}
