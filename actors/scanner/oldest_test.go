package scanner

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// TestBacklogSilencesHints: a hint refused as full wakes up the scanners, however long they pause;
// while scans leave cells behind, no hint overtakes them; then hints are forwarded again.
func TestBacklogSilencesHints(t *testing.T) {
	w := newWorld(1)
	var full atomic.Bool
	full.Store(true)
	w.answer = func(mvcc.Cell, bool) notify.Admission {
		if full.Load() {
			return notify.Full
		}
		return notify.Accepted
	}
	cfg := w.config()
	cfg.Scanners, cfg.PaceMin, cfg.PaceMax, cfg.MinAge = 1, time.Hour, time.Hour, time.Hour
	s := spawn(t, cfg)
	b := s.backlog[target]
	eventually(t, "the first turn has left the row", func() bool {
		return s.Stats().Turns.Load() == 1 && b.on.Load()
	})
	s.Hint([]mvcc.Cell{cell("a"), cell("b")})
	if got := s.Stats(); got.Hints.Load() != 2 || got.HintsDropped.Load() != 2 {
		t.Errorf("hints are taken while there is a backlog: %+v", got)
	}
	b.on.Store(false)
	s.Hint([]mvcc.Cell{cell("c")})
	eventually(t, "a hint without room wakes the scanner up", func() bool {
		return s.Stats().Turns.Load() >= 2 && b.on.Load()
	})
	full.Store(false)
	eventually(t, "the backlog ends with a turn that leaves nothing", func() bool {
		for _, turns := range s.scanners {
			turns.Wake()
		}
		return !b.on.Load()
	})
	s.Hint([]mvcc.Cell{cell("d")})
	eventually(t, "hints are passed on again", func() bool { return s.Stats().HintsPassed.Load() == 1 })
}

// TestBacklogEndsQuietly: the backlog ends when a full scan left nothing, or when nothing was left
// for a while; changes of about that time are not assumed to have had hints.
func TestBacklogEndsQuietly(t *testing.T) {
	var b backlog
	if !b.hinted(mvcc.TimestampAt(1)) || !b.noteSkipped(1000) || b.noteSkipped(1100) ||
		b.hinted(mvcc.MaxTimestamp) {
		t.Error("a backlog begins once, and nothing is hinted while it is there")
	}
	if b.noteNoneSkipped(1200, false, 250*time.Millisecond) {
		t.Error("it ends while something was left a moment ago")
	}
	if !b.noteNoneSkipped(1350, false, 250*time.Millisecond) || b.noteNoneSkipped(1350, true, 0) {
		t.Error("it ends once")
	}
	for at, want := range map[int64]bool{1340: false, 1360: false, 1500: true} {
		if got := b.hinted(mvcc.TimestampAt(at)); got != want {
			t.Errorf("a change at %d counts as hinted: %v", at, got)
		}
	}
	if !b.noteSkipped(2000) || !b.noteNoneSkipped(2000, true, time.Hour) {
		t.Error("it ends when nothing of all there is was left")
	}
}
