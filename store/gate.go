package store

import (
	"sync"
	"time"
)

// gate delays compactions that would create tables while so few files can be created that one might
// fail, which would lose the table's rows (docs/adr/0056). Badger's compactors cannot be stopped
// from outside, but each writes a line to the log between completing a table's contents and
// creating its file, and continues only after the line is written.
//
// A compaction that waits when the store closes waits forever: to continue could lose rows, and
// its inputs are still there for the next process.
type gate struct {
	space  *diskSpace
	closed <-chan struct{}

	once  sync.Once
	stuck chan struct{} // closed once a compaction waits forever
}

// gateDivisor determines the number of files that must be free for a table to be created,
// MinFreeFiles/gateDivisor. That number exceeds the files that all compactions can create
// concurrently.
const gateDivisor = 8

// gatePause is the time between two checks by a waiting compaction.
const gatePause = 100 * time.Millisecond

// wait returns when a table may be created, and never if the store closes first. Badger's
// compactors call it before each.
func (g *gate) wait() {
	short := g.space.shortOfFiles(gateDivisor)
	if short == nil {
		g.space.files.countNewTable()
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
			select {} // forever
		case <-tick.C:
			short = g.space.shortOfFiles(gateDivisor)
		}
	}
	g.space.files.countNewTable()
	log.Info("store: compaction continues")
}

// unlessStuck calls f, which waits for compactions, and returns its error; or it returns
// ErrCompactionStuck, with f still waiting, once a compaction waits forever.
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
