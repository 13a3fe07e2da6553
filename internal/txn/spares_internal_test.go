package txn

import (
	"testing"
	"time"
)

// TestSpares: the newest one is taken first, each once, and none that is old by either clock.
// Catches BROKEN=spare_forever.
func TestSpares(t *testing.T) {
	var s spares
	now := time.Now()
	s.put(0, now)
	for ts := Timestamp(1); ts <= 3; ts++ {
		s.put(ts, now)
	}
	for want := Timestamp(3); want > 0; want-- {
		if got, ok := s.take(now.Add(maxSpareAge)); got != want || !ok {
			t.Errorf("took %d, %v; want %d", got, ok, want)
		}
	}
	if got, ok := s.take(now); ok {
		t.Errorf("took %d of none", got)
	}
	for name, later := range map[string]time.Time{
		"an old one":                   now.Add(maxSpareAge + 1),
		"one from before a suspension": now.Round(0).Add(maxSpareAge + 1),
		"one from the future":          now.Round(0).Add(-1),
	} {
		s.put(7, now)
		if got, ok := s.take(later); ok {
			t.Errorf("SPARE-FOREVER: took %s: %d", name, got)
		}
	}
	if len(s.free) != 0 {
		t.Errorf("%d are left", len(s.free))
	}
}

// TestSparesAreBounded: the newest ones stay.
func TestSparesAreBounded(t *testing.T) {
	var s spares
	now := time.Now()
	for ts := Timestamp(1); ts <= 10*maxSpares; ts++ {
		s.put(ts, now)
	}
	if got, ok := s.take(now); got != 10*maxSpares || !ok || len(s.free) >= maxSpares {
		t.Errorf("took %d, %d are left", got, len(s.free))
	}
}

// TestSparesAfterConflict: they are used again after some commits.
func TestSparesAfterConflict(t *testing.T) {
	var s spares
	now := time.Now()
	s.put(1, now)
	s.conflicted()
	for range sparesAfterConflict {
		if got, ok := s.take(now); ok {
			t.Errorf("took %d", got)
		}
	}
	if _, ok := s.take(now); !ok {
		t.Error("spare timestamps are never used again")
	}
}
