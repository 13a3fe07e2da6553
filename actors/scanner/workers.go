package scanner

import (
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// A node may have several Scanners: of its own observers and of each worker that is connected to
// it. The node shares hints and work among them by these methods, which any goroutine may call.

// Takes reports whether a hint of the cell would be passed on: its column is one of the targets,
// not paused, and has no backlog.
func (s *Scanners) Takes(cell mvcc.Cell) bool {
	t := notify.TargetOf(cell)
	return s.targets[t] && !s.cfg.Paused(t) && !s.backlog[t].on.Load()
}

// Wake makes the scanners look for dirty cells at once.
func (s *Scanners) Wake() {
	for _, t := range s.scanners {
		t.Wake()
	}
}
