package scanner

import (
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// TestDebouncedAreLeft: scanners leave cells of a debounced column alone until they have
// rested, but for one turn in each debounce.
func TestDebouncedAreLeft(t *testing.T) {
	w := newWorld(3) // their changes are of 1970
	cfg := w.config()
	now := time.UnixMilli(500)
	cfg.Now = func() time.Time { return now }
	cfg.Young, cfg.Targets = -1, []notify.Target{{Table: 16, Column: column, Debounce: time.Second}}
	s := w.scan(cfg, 1)
	for i, c := range []struct {
		after   time.Duration
		offered int
	}{{0, 3}, {time.Millisecond, 0}, {498 * time.Millisecond, 0}, {time.Millisecond, 3}} {
		now = now.Add(c.after)
		w.offered = nil
		s.turn(t.Context())
		if len(w.offered) != c.offered {
			t.Errorf("turn %d: %d cells were offered, want %d", i, len(w.offered), c.offered)
		}
	}
	d := s.debounced[target]
	for _, n := range []mvcc.Notify{
		{TS: mvcc.TimestampAt(now.UnixMilli() + 1)}, {TS: mvcc.TimestampAt(now.UnixMilli()),
			Attempts: 1},
	} {
		if d.leaves(&n, now.UnixMilli()) {
			t.Errorf("%+v is left alone", n)
		}
	}
}

// TestWaitingCellsTakeNoSlot: a cell that waits for its debounce gives the scanner's slot
// back once, before it is done.
func TestWaitingCellsTakeNoSlot(t *testing.T) {
	w := newWorld(1)
	s := w.scan(w.config(), 1)
	slots := s.slots[target]
	held, other := &slot{of: slots}, &slot{of: slots}
	slots <- struct{}{}
	slots <- struct{}{}
	held.free()
	held.free()
	if len(slots) != 1 {
		t.Errorf("%d slots are taken, want the other cell's", len(slots))
	}
	if other.free(); len(slots) != 0 {
		t.Errorf("%d slots are taken", len(slots))
	}
}
