package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Latencies is a histogram with an error of at most 0.1 %, from 1 µs to 1 hour. Safe for concurrent
// use.
type Latencies struct {
	Rate float64 // calls that returned, per second; set by OpenLoop

	mu sync.Mutex
	h  *hdrhistogram.Histogram // in nanoseconds
}

// longestLatency bounds a recorded latency.
const longestLatency = time.Hour

// NewLatencies returns an empty histogram.
func NewLatencies() *Latencies {
	return &Latencies{h: hdrhistogram.New(int64(time.Microsecond), int64(longestLatency), 3)}
}

// Record adds a latency; negative ones count as 0, those above an hour as an hour.
func (l *Latencies) Record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(int64(min(max(d, 0), longestLatency))) // it fails only beyond the bounds
}

// At returns the latency at a quantile, 0 to 1; 0 without latencies.
func (l *Latencies) At(quantile float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.h.ValueAtQuantile(quantile * 100))
}

// Millis returns the latency at a quantile in milliseconds.
func (l *Latencies) Millis(quantile float64) float64 { return l.At(quantile).Seconds() * 1000 }

// Count returns the number of latencies.
func (l *Latencies) Count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.h.TotalCount()
}

// Mean returns the mean latency.
func (l *Latencies) Mean() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.h.Mean())
}

// ErrLoad is wrapped by the error of an open loop whose calls were so slow that it could not keep
// its rate with the given number of goroutines.
var ErrLoad = errors.New("harness: the load could not be kept")

// OpenLoop calls fn at a constant rate per second for d, from as many goroutines as needed, up to
// limit; i counts the calls. A latency counts from the time at which its call was due, whether or
// not a goroutine was free for it then, so that a stall shows in the latencies of all calls that it
// delays (no coordinated omission). If all goroutines are busy, due calls wait; those that have not
// begun when d ends are dropped, and OpenLoop returns an error that wraps ErrLoad with the
// latencies of the others. It returns the first error of a call, after which it begins no other.
func OpenLoop(ctx context.Context, rate float64, d time.Duration, limit int,
	fn func(ctx context.Context, i int) error) (*Latencies, error) {
	if rate <= 0 || limit < 1 {
		return nil, fmt.Errorf("harness: an open loop with a rate of %v and %d goroutines; both must be positive", rate, limit)
	}
	l := NewLatencies()
	g, ctx := errgroup.WithContext(ctx)
	due := make(chan int)
	began := time.Now()
	at := func(i int) time.Time { return began.Add(time.Duration(float64(i) / rate * float64(time.Second))) }
	worker := func(i int) error {
		for ok := true; ok; i, ok = <-due {
			if err := fn(ctx, i); err != nil {
				return err
			}
			l.Record(time.Since(at(i)))
		}
		return nil
	}
	planned := int(rate * d.Seconds())
	made, busy := 0, atomic.Bool{}
	g.Go(func() error {
		defer close(due)
		defer pace()()
		workers := 0
		end := time.NewTimer(d)
		defer end.Stop()
		for i := range planned {
			sleepUntil(at(i))
			select {
			case due <- i:
			default:
				if workers < limit {
					workers++
					g.Go(func() error { return worker(i) })
					break
				}
				busy.Store(true)
				select {
				case due <- i:
				case <-end.C:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if made++; ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return l, err
	}
	l.Rate = float64(l.Count()) / max(time.Since(began), d).Seconds()
	if made < planned || busy.Load() {
		return l, fmt.Errorf("%w: %d of %d calls in %v (%.0f of %.0f a second) with %d goroutines",
			ErrLoad, made, planned, d, l.Rate, rate, limit)
	}
	return l, nil
}

// pace makes the calling goroutine's thread wake as exactly as the kernel can, until the returned
// function is called. The runtime's timers would be up to a millisecond late in an idle process.
// The goroutine must call end before it returns: otherwise the Go runtime ends the thread, and the
// child processes that it has started with a parent-death signal receive that signal.
func pace() (end func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // the default
		runtime.UnlockOSThread()
	}
}

// sleepUntil returns at or after t. The caller runs on a thread prepared by pace.
func sleepUntil(t time.Time) {
	for {
		left := time.Until(t)
		if left <= 0 {
			return
		}
		spec := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&spec, nil) // interrupted by a signal: sleeps again
	}
}
