package spares

import (
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestSpares: the newest one is taken first, each once, and none that is old by either clock.
// Catches BROKEN=spare_forever.
func TestSpares(t *testing.T) {
	var s Spares
	now := time.Now()
	s.Put(0, now)
	for ts := mvcc.Timestamp(1); ts <= 3; ts++ {
		s.Put(ts, now)
	}
	for want := mvcc.Timestamp(3); want > 0; want-- {
		if got, ok := s.Take(now.Add(maxSpareAge)); got != want || !ok {
			t.Errorf("took %d, %v; want %d", got, ok, want)
		}
	}
	if got, ok := s.Take(now); ok {
		t.Errorf("took %d of none", got)
	}
	for name, later := range map[string]time.Time{
		"an old one":                   now.Add(maxSpareAge + 1),
		"one from before a suspension": now.Round(0).Add(maxSpareAge + 1),
		"one from the future":          now.Round(0).Add(-1),
	} {
		s.Put(7, now)
		if got, ok := s.Take(later); ok {
			t.Errorf("SPARE-FOREVER: took %s: %d", name, got)
		}
	}
	if len(s.free) != 0 {
		t.Errorf("%d are left", len(s.free))
	}
}

// TestSparesAreBounded: the newest ones stay.
func TestSparesAreBounded(t *testing.T) {
	var s Spares
	now := time.Now()
	for ts := mvcc.Timestamp(1); ts <= 10*maxSpares; ts++ {
		s.Put(ts, now)
	}
	if got, ok := s.Take(now); got != 10*maxSpares || !ok || len(s.free) >= maxSpares {
		t.Errorf("took %d, %d are left", got, len(s.free))
	}
}

// TestSparesAfterConflict: they are used again after some commits.
func TestSparesAfterConflict(t *testing.T) {
	var s Spares
	now := time.Now()
	s.Put(1, now)
	s.Conflicted()
	for range sparesAfterConflict {
		if got, ok := s.Take(now); ok {
			t.Errorf("took %d", got)
		}
	}
	if _, ok := s.Take(now); !ok {
		t.Error("spare timestamps are never used again")
	}
}
