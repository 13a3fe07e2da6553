package store

import (
	"sync"
	"time"
)

// gate keeps compactions from creating tables while so few files can be created that one might
// fail, which would lose the table's rows (docs/adr/0056). Badger's compactors cannot be stopped
// from outside, but each writes a line to the log between the end of a table's contents and the
// creation of its file, and does not go on before the line is written.
//
// A compaction that waits when the store closes waits forever: to continue could lose rows, and
// its inputs are still there for the next process.
type gate struct {
	space  *diskSpace
	closed <-chan struct{}

	once  sync.Once
	stuck chan struct{} // closed once a compaction waits for good
}

// gateDivisor determines the least number of files that must be free for a table to be created,
// MinFreeFiles/gateDivisor. It is more than all compactions can be creating at the same moment:
// two of at most eight files beside one for each of their parts, of which there are five at most.
const gateDivisor = 8

// gatePause is the time between two checks by a waiting compaction.
const gatePause = 100 * time.Millisecond

// wait returns when a table may be created. Badger's compactors call it, before each.
func (g *gate) wait() {
	short := g.space.shortOfFiles(gateDivisor)
	if short == nil {
		g.space.files.begun()
		return
	}
	log := g.space.opts.Logger
	log.Error("store: compaction waits until its table can be created", "error", short)
	tick := time.NewTicker(gatePause)
	defer tick.Stop()
	for short != nil {
		select {
		case <-g.closed:
			g.once.Do(func() { close(g.stuck) })
			select {} // for good
		case <-tick.C:
			short = g.space.shortOfFiles(gateDivisor)
		}
	}
	g.space.files.begun()
	log.Info("store: compaction continues")
}

// unlessStuck calls f, which waits for compactions, and returns its error; or it returns
// ErrCompactionStuck, with f still waiting, once one of them never ends.
func (g *gate) unlessStuck(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-g.stuck:
		return ErrCompactionStuck
	}
}
