package scanner

import (
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// TestDebouncedAreLeft: scanners skip cells of a debounced column until they have rested, except in
// one turn per debounce.
func TestDebouncedAreLeft(t *testing.T) {
	w := newWorld(3) // changes dated 1970
	cfg := w.config()
	now := time.UnixMilli(500)
	cfg.Now = func() time.Time { return now }
	cfg.MinAge, cfg.Targets = -1, []notify.Target{{Table: 16, Column: column, Debounce: time.Second}}
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

// TestLongDebounceIsHandedOut: a cell with a debounce of an hour that changes without pause, and
// that no dispatcher has, is handed out within a minute, to a dispatcher that measures the time.
func TestLongDebounceIsHandedOut(t *testing.T) {
	var d debounced
	d.rest = time.Hour
	now := time.UnixMilli(5)
	n := mvcc.Notify{TS: mvcc.TimestampAt(5)}
	d.turn(now)
	for _, c := range []struct {
		after time.Duration
		left  bool
	}{{time.Second, true}, {59 * time.Second, false}, {time.Second, true}} {
		now = now.Add(c.after)
		d.turn(now)
		if got := d.leaves(&n, now.UnixMilli()); got != c.left {
			t.Errorf("at %v it is left alone: %v", now.Sub(time.UnixMilli(5)), got)
		}
	}
}

// TestWaitingCellsTakeNoSlot: a cell that waits for its debounce returns the scanner's slot once,
// before it is done.
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
