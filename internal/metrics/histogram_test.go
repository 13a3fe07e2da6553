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

// TestQuantile: the quantile is in the bucket of the value; without values there is none.
func TestQuantile(t *testing.T) {
	var h Durations
	if got := h.Read().Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for range 90 {
		h.Observe(2 * time.Millisecond)
	}
	for range 10 {
		h.Observe(400 * time.Millisecond)
	}
	for _, tc := range []struct{ q, from, to float64 }{
		{0.5, 0.001, 0.0025}, {0.9, 0.001, 0.0025}, {0.91, 0.25, 0.5}, {1, 0.25, 0.5},
	} {
		if got := h.Read().Quantile(tc.q); got <= tc.from || got > tc.to {
			t.Errorf("%v: %v is not between %v and %v", tc.q, got, tc.from, tc.to)
		}
	}
	h.Observe(5 * time.Hour)
	if got := h.Read().Quantile(1); got != time.Hour.Seconds() {
		t.Errorf("above the last bound: %v", got)
	}
}

// TestConcurrentObserve: no observation is lost.
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
	b.Run("moment", func(b *testing.B) {
		var h Durations
		for b.Loop() {
			h.Observe(Now().Elapsed())
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
