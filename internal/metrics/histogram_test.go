package metrics

import (
	"sync"
	"testing"
	"time"
)

// TestBuckets: a value counts in the first bucket whose bound is not below it.
func TestBuckets(t *testing.T) {
	for _, tc := range []struct {
		d      time.Duration
		bucket int
	}{
		{-time.Second, 0}, {0, 0}, {100 * time.Microsecond, 0}, {100*time.Microsecond + 1, 1},
		{time.Millisecond, 3}, {3 * time.Second, 14}, {time.Hour, 19}, {2 * time.Hour, 20},
	} {
		var h Durations
		h.Observe(tc.d)
		got := h.Read()
		if got.Counts[tc.bucket] != 1 || got.Count() != 1 || got.Sum != max(tc.d, 0).Seconds() {
			t.Errorf("%v: %v", tc.d, got)
		}
		if tc.bucket < len(got.Bounds) && got.Bounds[tc.bucket] < tc.d.Seconds() {
			t.Errorf("%v is in the bucket up to %v", tc.d, got.Bounds[tc.bucket])
		}
	}
	for _, tc := range []struct{ n, bucket int }{
		{0, 0}, {1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {4096, 12}, {4097, 13}, {1 << 40, 13},
	} {
		var h Sizes
		h.Observe(tc.n)
		got := h.Read()
		if got.Counts[tc.bucket] != 1 || got.Count() != 1 || got.Sum != float64(tc.n) {
			t.Errorf("%d: %v", tc.n, got)
		}
		if tc.bucket < len(got.Bounds) && got.Bounds[tc.bucket] < float64(tc.n) {
			t.Errorf("%d is in the bucket up to %v", tc.n, got.Bounds[tc.bucket])
		}
	}
}

// TestConcurrentObserve: nothing gets lost.
func TestConcurrentObserve(t *testing.T) {
	var d Durations
	var s Sizes
	var all sync.WaitGroup
	const callers, each = 8, 1000
	for range callers {
		all.Go(func() {
			for i := range each {
				d.Observe(time.Duration(i) * time.Millisecond)
				s.Observe(i)
			}
		})
	}
	all.Wait()
	if d.Read().Count() != callers*each || s.Read().Count() != callers*each ||
		s.Read().Sum != callers*each*(each-1)/2 {
		t.Errorf("%v, %v", d.Read(), s.Read())
	}
}

func BenchmarkObserve(b *testing.B) {
	b.Run("durations", func(b *testing.B) {
		var h Durations
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				h.Observe(3 * time.Millisecond)
			}
		})
	})
	b.Run("clock", func(b *testing.B) {
		var h Durations
		b.ReportAllocs()
		for b.Loop() {
			h.Since(time.Now())
		}
	})
	b.Run("sizes", func(b *testing.B) {
		var h Sizes
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				h.Observe(100)
			}
		})
	})
}
