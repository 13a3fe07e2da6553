package space

import (
	"errors"
	"sync"
	"time"
)

// Gate delays compactions that would create tables while so few files can be created that one might
// fail, which would lose the table's rows (docs/adr/0056). Badger's compactors cannot be stopped
// from outside, but each writes a line to the log between completing a table's contents and
// creating its file, and continues only after the line is written.
//
// A compaction that waits when the store closes waits forever: to continue could lose rows, and
// its inputs are still there for the next process.
type Gate struct {
	disk   *Disk
	closed <-chan struct{}

	once  sync.Once
	stuck chan struct{} // closed once a compaction waits forever
}

// NewGate returns a Gate. The caller closes the channel when the store closes.
func NewGate(disk *Disk, closed <-chan struct{}) *Gate {
	return &Gate{disk: disk, closed: closed, stuck: make(chan struct{})}
}

// ErrCompactionStuck is returned by UnlessStuck once a compaction waits forever.
var ErrCompactionStuck = errors.New("store: a compaction still waits to create a file: " +
	"end the process before opening the store again")

// gateDivisor determines the number of files that must be free for a table to be created,
// MinFreeFiles/gateDivisor. That number exceeds the files that all compactions can create
// concurrently.
const gateDivisor = 8

// gatePause is the time between two checks by a waiting compaction.
const gatePause = 100 * time.Millisecond

// Wait returns when a table may be created, and never if the store closes first. Badger's
// compactors call it before each.
func (g *Gate) Wait() {
	short := g.disk.ShortOfFiles(gateDivisor)
	if short == nil {
		g.disk.CountNewTable()
		return
	}
	log := g.disk.opts.Logger
	log.Error("store: compaction waits until its table can be created", "error", short)
	tick := time.NewTicker(gatePause)
	defer tick.Stop()
	for short != nil {
		select {
		case <-g.closed:
			g.once.Do(func() { close(g.stuck) })
			select {} // forever
		case <-tick.C:
			short = g.disk.ShortOfFiles(gateDivisor)
		}
	}
	g.disk.CountNewTable()
	log.Info("store: compaction continues")
}

// UnlessStuck calls f, which waits for compactions, and returns its error; or it returns
// ErrCompactionStuck, with f still waiting, once a compaction waits forever.
func (g *Gate) UnlessStuck(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-g.stuck:
		return ErrCompactionStuck
	}
}
