package scanner

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/quick"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// TestTurnSeesEveryCell: a walk from any start covers the whole tablet, and all tablets.
func TestTurnSeesEveryCell(t *testing.T) {
	for _, rows := range []int{1, 15, 16, 17, 200} {
		for _, perTablet := range []int{1000, 60, 7} {
			for seed := range uint64(20) {
				w := newWorld(rows)
				w.split(perTablet)
				cfg := w.config()
				cfg.Requests = 1000
				s := w.scan(cfg, seed)
				s.turn(t.Context())
				seen := map[mvcc.Cell]int{}
				for _, c := range w.offered {
					seen[c]++
				}
				if len(seen) != rows || len(w.offered) != rows {
					t.Fatalf("seed %d: %d rows, %d per tablet: %d cells offered, %d different",
						seed, rows, perTablet, len(w.offered), len(seen))
				}
			}
		}
	}
}

// TestSmallBudgetStillFindsAll: a turn cut short by its budget starts elsewhere next time, so every
// cell is reached.
func TestSmallBudgetStillFindsAll(t *testing.T) {
	w := newWorld(500)
	cfg := w.config()
	cfg.Requests = 4 // 64 of 500 rows
	s := w.scan(cfg, 7)
	seen := map[mvcc.Cell]bool{}
	for turn := 0; len(seen) < len(w.rows); turn++ {
		if turn == 1000 {
			t.Fatalf("%d of %d cells found in %d turns", len(seen), len(w.rows), turn)
		}
		w.offered = nil
		s.turn(t.Context())
		for _, c := range w.offered {
			seen[c] = true
		}
	}
}

// TestFairStart: starting points are spread over all dirty rows, whether they fit a page or not.
// The rows share a long prefix, so that a random byte string of the tablet's range would miss them
// all.
func TestFairStart(t *testing.T) {
	for _, c := range []struct{ rows, buckets int }{{10, 10}, {400, 8}} {
		w := newWorld(c.rows)
		cfg := w.config()
		cfg.Requests = 60
		counts := make([]int, c.buckets)
		const turns = 1000
		scanners := make([]*scan, 10)
		for i := range scanners {
			scanners[i] = w.scan(cfg, uint64(i))
		}
		for i := range turns {
			w.offered = nil
			scanners[i%len(scanners)].turn(t.Context())
			for j, r := range w.rows {
				if r == w.offered[0].Row {
					counts[j*c.buckets/c.rows]++
				}
			}
		}
		for b, n := range counts {
			if want := turns / c.buckets; n < want/3 {
				t.Errorf("%d rows: part %d of %d was first %d times, fair is %d (%v)", c.rows, b,
					c.buckets, n, want, counts)
			}
		}
	}
}

func TestBetweenStaysInside(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	inside := func(start, end []byte, bounded bool) bool {
		span := mvcc.Span{Start: string(start), End: string(end), HasEnd: bounded}
		if bounded && span.Start >= span.End {
			return true
		}
		return span.Contains(between(rng, span))
	}
	if err := quick.Check(inside, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for range 100 {
		seen[between(rng, mvcc.Span{Start: "host/a", End: "host/b", HasEnd: true})] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different rows of 100", len(seen))
	}
}

// TestTeleport: a scanner that finds a locked row jumps elsewhere, a bounded number of times, and
// hands on the rows that it locked.
func TestTeleport(t *testing.T) {
	w := newWorld(200)
	w.split(10)
	busy := map[string]bool{}
	for i := 50; i < 60; i++ { // another worker is in this tablet
		w.refuse[notify.LockKey(cell(row(i)))] = true
		busy[row(i)] = true
	}
	cfg := w.config()
	cfg.Requests = 1000
	s := w.scan(cfg, 3)
	s.turn(t.Context())
	jumps := s.stats.Teleports.Load()
	if jumps == 0 || jumps > maxTeleports {
		t.Errorf("%d teleports", jumps)
	}
	for _, c := range w.offered {
		if busy[c.Row] {
			t.Errorf("%s was handed on although another worker has it", c.Row)
		}
	}
	s.locks.unlock()
	if len(w.held) != 0 {
		t.Errorf("%d locks left behind", len(w.held))
	}
}

// TestPace: an empty turn doubles the pause up to the bound, a find resets it; a turn's requests
// are bounded, also when everything is refused.
func TestPace(t *testing.T) {
	w := newWorld(0)
	cfg := w.config()
	s := w.scan(cfg, 1)
	for i, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		want *= time.Millisecond
		if got := s.turn(t.Context()); got < want/2 || got > want {
			t.Errorf("idle turn %d: pause %v, want %v to %v", i, got, want/2, want)
		}
	}
	w.rows = []string{row(1)}
	if got := s.turn(t.Context()); got != paceBusy {
		t.Errorf("after work: pause %v", got)
	}
	for name, answer := range map[string]notify.Admission{
		"collapsed": notify.Collapsed, "deferred": notify.Deferred, "full": notify.Full,
		"unlinked": notify.Unlinked,
	} {
		w := newWorld(1000)
		w.split(100)
		w.answer = func(mvcc.Cell, bool) notify.Admission { return answer }
		s := w.scan(w.config(), 1)
		if got := s.turn(t.Context()); got < cfg.PaceMin/2 {
			t.Errorf("%s: pause %v after nothing was accepted", name, got)
		}
		slots := len(s.slots[notify.TargetOf(cell(""))])
		s.locks.unlock()
		if w.walks > cfg.Requests || len(w.held) != 0 || slots != 0 {
			t.Errorf("%s: %d requests, %d locks, %d slots", name, w.walks, len(w.held), slots)
		}
	}
	w = newWorld(10)
	w.walkErr = errAway
	s = w.scan(w.config(), 1)
	if got := s.turn(t.Context()); got < cfg.PaceMin/2 || s.stats.Errors.Load() == 0 {
		t.Errorf("errors: pause %v", got)
	}
}

// TestWindow: the dispatcher holds at most as many cells as the window allows; turns wait, and end
// with their context.
func TestWindow(t *testing.T) {
	w := newWorld(100)
	w.keepDone = true
	cfg := w.config()
	cfg.Window = 10
	s := w.scan(cfg, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil { // a turn ends after a short wait
			s.turn(ctx)
		}
	}()
	full := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.offered) == 10
	}
	for end := time.Now().Add(5 * time.Second); !full(); {
		if time.Now().After(end) {
			t.Fatal("the window never filled")
		}
	}
	w.mu.Lock()
	some := w.done[:3]
	w.mu.Unlock()
	for _, done := range some {
		done()
	}
	more := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.offered) == 13 && w.unlocked == 3
	}
	for end := time.Now().Add(5 * time.Second); !more(); {
		if time.Now().After(end) {
			t.Fatal("released slots were not used")
		}
	}
	cancel()
	<-ended
	if len(w.offered) != 13 || w.unlocked != 3 {
		t.Errorf("%d offered, %d unlocked", len(w.offered), w.unlocked)
	}
}

// TestWindowOfTarget: the dispatcher receives as many cells as it can use, and no more.
func TestWindowOfTarget(t *testing.T) {
	for enough, want := range map[int]int{0: 32, 40: 32, 200: 50, 1 << 20: maxWindow} {
		w := newWorld(maxWindow + 100)
		w.keepDone = true
		cfg := w.config()
		cfg.Scanners, cfg.Requests = 4, 1000
		cfg.Targets = []notify.Target{{Table: target.Table, Column: column, Enough: enough}}
		w.scan(cfg, 1).turn(t.Context())
		if got := len(w.offered); got != want {
			t.Errorf("%d are enough for four scanners: one has handed out %d, want %d", enough,
				got, want)
		}
	}
}

// TestYoung: with hints on, scans leave recent changes to hints, except those of a clock that is
// ahead, and failed ones.
func TestYoung(t *testing.T) {
	w := newWorld(0)
	cfg := w.config()
	s := w.scan(cfg, 1)
	now := int64(1_000_000)
	at := mvcc.TimestampAt
	for _, c := range []struct {
		n    mvcc.Notify
		want bool
	}{
		{mvcc.Notify{TS: at(now)}, true},
		{mvcc.Notify{TS: at(now - 249)}, true},
		{mvcc.Notify{TS: at(now - 250)}, false},
		{mvcc.Notify{TS: at(now + 1)}, false},
		{mvcc.Notify{TS: at(now), Attempts: 1}, false},
	} {
		if got := s.young(&c.n, now); got != c.want {
			t.Errorf("%+v: young is %t", c.n, got)
		}
	}
	s.cfg.Hints = HintsOff
	if s.young(&mvcc.Notify{TS: at(now)}, now) {
		t.Error("hints are off, and a fresh change is left to them")
	}
}

// TestLostLockService: without an answer from lockd, cells are still handed on.
func TestLostLockService(t *testing.T) {
	w := newWorld(30)
	w.lockErr = errAway
	s := w.scan(w.config(), 1)
	s.turn(t.Context())
	if len(w.offered) != 30 {
		t.Errorf("%d of 30 cells handed on", len(w.offered))
	}
}
