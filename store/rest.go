package store

import (
	"math"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/dgraph-io/badger/v4"
)

// Badger's compactors look for work twenty times a second each, for good, and have no option for less: two thirds of what
// wakes an idle node. While little is written they have none, so then they are stopped: see docs/adr/0016.

const (
	// restAfter is for how many looks in a row, each spaceInterval after the last, little must have been written: less than a
	// part of a memtable, restPart. A rest ends when as much has been written since it began.
	restAfter = 3
	restPart  = 16
	// restInterval is how often the store is looked at while all databases rest: for how long at most a compaction that is due
	// waits then, and what is known of the free space is old.
	restInterval = 5 * time.Second

	never = math.MaxUint64
)

// What Flatten stops and starts the compactors with. Neither may run beside the other, Flatten or Close. Stopping waits for the
// compactions that are under way, and does nothing if they are stopped; starting must not be done twice.
//
//go:linkname stopCompactions github.com/dgraph-io/badger/v4.(*DB).stopCompactions
func stopCompactions(db *badger.DB)

//go:linkname startCompactions github.com/dgraph-io/badger/v4.(*DB).startCompactions
func startCompactions(db *badger.DB)

// rest is whether a database's compactors are stopped. A start is never forgotten for longer than restInterval.
type rest struct {
	until   atomic.Uint64 // the bytes written since Open that end the rest; never: the compactors run. Changed under Store.reclaiming
	written uint64        // bytes at the last look; guarded by reclaiming, as the next
	quiet   int           // looks since much was written
}

func (r *rest) resting() bool { return r.until.Load() != never }

// wrote has the database's rest ended if much has been written. It waits for nothing: the worker starts the compactors.
func (s *Store) wrote(d *database) {
	if d.count.bytes.Load() < d.rest.until.Load() {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // it has been told
	}
}

// look is the worker's turn: it lets databases rest that have nothing to do, and wakes the others. It reports whether all of
// them rest.
func (s *Store) look() bool {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if s.closed.Load() {
		return true
	}
	all := true
	for _, d := range s.databases() {
		written, little := d.count.bytes.Load(), uint64(s.opts.MemTableSize/restPart)
		d.rest.quiet++
		if written-d.rest.written >= little || written >= d.rest.until.Load() {
			d.rest.quiet = 0
		}
		d.rest.written = written
		if d.rest.quiet < restAfter || s.blocked.Load() || d.due() {
			d.rouse()
		} else {
			d.settle(written + little)
		}
		all = all && d.rest.resting()
	}
	return all
}

// settle stops the compactors if they run. Store.reclaiming is held. It is held up only by a compaction that has gone on since
// before the quiet began; writes are not.
func (d *database) settle(until uint64) {
	if !d.rest.resting() {
		stopCompactions(d.db)
		d.rest.until.Store(until)
	}
}

// rouse starts the compactors if they are stopped. Store.reclaiming is held.
func (d *database) rouse() {
	if d.rest.resting() {
		startCompactions(d.db)
		d.rest.until.Store(never)
	}
}

// due reports whether there is something to compact. A write of a few bytes brings that about when it has a memtable flushed.
func (d *database) due() bool {
	for _, l := range d.db.Levels() {
		if l.Score >= 1 || l.Adjusted >= 1 {
			return true
		}
	}
	return false
}
