package metrics

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// Histogram is a reading of a histogram.
type Histogram struct {
	Bounds []float64 // upper limits of the buckets, inclusive and ascending; shared: read only
	Counts []uint64  // per bucket, not cumulative; the last one is above all bounds
	Sum    float64   // of all values, in the unit of Bounds
}

// Count returns the number of observed values.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Plus returns the sum of both; one of them may be the zero value.
func (h Histogram) Plus(o Histogram) Histogram {
	if len(h.Counts) == 0 {
		return o
	}
	out := Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum + o.Sum}
	for i, n := range o.Counts {
		out.Counts[i] += n
	}
	return out
}

// Minus returns the observations since an earlier reading of the same histogram, which may be
// the zero value.
func (h Histogram) Minus(earlier Histogram) Histogram {
	out := Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum - earlier.Sum}
	for i, n := range earlier.Counts {
		out.Counts[i] -= min(n, out.Counts[i])
	}
	return out
}

// Quantile estimates the q-quantile (0 < q ≤ 1). It assumes that values are evenly spread over
// their bucket, and counts those above the last bound as that bound. It returns 0 without
// observations.
func (h Histogram) Quantile(q float64) float64 {
	rank, below, lower := q*float64(h.Count()), 0.0, 0.0
	for i, bound := range h.Bounds {
		n := float64(h.Counts[i])
		if n > 0 && below+n >= rank {
			return lower + (bound-lower)*(rank-below)/n
		}
		below, lower = below+n, bound
	}
	if below < rank {
		return lower
	}
	return 0
}

// durationBounds are the buckets of Durations: from operations in memory, over one disk sync,
// to more than any caller's timeout.
var durationBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour,
}

// seconds are durationBounds in seconds.
var seconds = func() []float64 {
	out := make([]float64, len(durationBounds))
	for i, b := range durationBounds {
		out[i] = b.Seconds()
	}
	return out
}()

// Durations is a histogram of durations; readings are in seconds. All its methods may be
// called concurrently.
type Durations struct {
	sum    atomic.Int64 // nanoseconds
	counts [len(durationBounds) + 1]atomic.Uint64
}

// Observe counts d. It counts a negative d, which the clocks of two machines may yield, as
// zero.
func (h *Durations) Observe(d time.Duration) {
	d = max(d, 0)
	// Most durations are short, so a search from below needs few comparisons.
	i := 0
	for i < len(durationBounds) && d > durationBounds[i] {
		i++
	}
	h.sum.Add(int64(d))
	h.counts[i].Add(1)
}

// Since counts the time from began until now.
func (h *Durations) Since(began time.Time) { h.Observe(time.Since(began)) }

// Read returns the observations so far.
func (h *Durations) Read() Histogram {
	return Histogram{
		Bounds: seconds, Counts: read(h.counts[:]),
		Sum: time.Duration(h.sum.Load()).Seconds(),
	}
}

// process is the approximate start time of this process.
var process = time.Now()

// Moment is a time relative to the approximate start of the process. It is cheaper than a
// time.Time: Now reads only the monotonic clock.
type Moment time.Duration

// Now returns the current moment.
func Now() Moment { return Moment(time.Since(process)) }

// Elapsed returns the time since the moment.
func (m Moment) Elapsed() time.Duration { return time.Since(process) - time.Duration(m) }

// sizeBuckets is the number of bounds of Sizes: 1, 2, 4 and so on up to 4096.
const sizeBuckets = 13

// powers are the bounds of Sizes.
var powers = func() []float64 {
	out := make([]float64, sizeBuckets)
	for i := range out {
		out[i] = float64(int(1) << i)
	}
	return out
}()

// Sizes is a histogram of counts, such as the messages in a batch. All its methods may be
// called concurrently.
type Sizes struct {
	sum    atomic.Uint64
	counts [sizeBuckets + 1]atomic.Uint64
}

// Observe counts n, which must not be negative.
func (h *Sizes) Observe(n int) {
	h.sum.Add(uint64(n))
	h.counts[min(bits.Len(uint(max(n, 1)-1)), sizeBuckets)].Add(1)
}

// Read returns the observations so far.
func (h *Sizes) Read() Histogram {
	return Histogram{Bounds: powers, Counts: read(h.counts[:]), Sum: float64(h.sum.Load())}
}

func read(counts []atomic.Uint64) []uint64 {
	out := make([]uint64, len(counts))
	for i := range counts {
		out[i] = counts[i].Load()
	}
	return out
}
