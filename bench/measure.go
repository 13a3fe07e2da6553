package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// kind is an operation to measure: begin prepares a fresh store and returns the operation that
// callers repeat.
type kind struct {
	name  string
	begin func(ctx context.Context, dir string) (subject, error)
}

// subject is a kind with its store open.
type subject interface {
	// do carries out operation i of a caller.
	do(ctx context.Context, caller, i int) error
	// batches returns the mean numbers of operations per tablet batch and per synced commit
	// so far; 0 without batches.
	batches() (tablet, log float64)
	close() error
}

// figure is one measurement.
type figure struct {
	perSecond      float64
	cpuMicros      float64 // user and system time per operation
	p50, p99, p999 time.Duration
	most           time.Duration // the longest operation, which shows pauses of the whole store
	tablet, synced float64
}

// results holds all measurements by kind, number of callers and round.
type results map[string]map[int][]figure

// best returns the measurement with the highest rate: load from other programs only lowers it.
func (r results) best(kind string, callers int) (best figure, ok bool) {
	for _, f := range r[kind][callers] {
		if f.perSecond >= best.perSecond {
			best = f
		}
		ok = true
	}
	return best, ok
}

// measureAll measures all kinds in each round, so that compared kinds are measured within the same
// seconds.
func measureAll(ctx context.Context, o options) (results, error) {
	r := results{}
	for range o.rounds {
		for _, callers := range o.callers {
			for _, k := range kinds() {
				if !strings.Contains(k.name, o.only) {
					continue
				}
				f, err := measure(ctx, o, k, callers)
				if err != nil {
					return nil, fmt.Errorf("%s with %d callers: %w", k.name, callers, err)
				}
				if r[k.name] == nil {
					r[k.name] = map[int][]figure{}
				}
				r[k.name][callers] = append(r[k.name][callers], f)
			}
		}
	}
	return r, nil
}

func measure(ctx context.Context, o options, k kind, callers int) (figure, error) {
	dir, err := os.MkdirTemp(o.dir, "percolator-bench-")
	if err != nil {
		return figure{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := k.begin(ctx, dir)
	if err != nil {
		return figure{}, err
	}
	stop, err := o.profile.start()
	if err != nil {
		return figure{}, errors.Join(err, s.close())
	}
	f, err := load(ctx, s, callers, o.duration)
	return f, errors.Join(err, stop(), s.close())
}

// longest bounds a measurement in which no operation ends within -duration.
const longest = time.Minute

// load has the callers repeat the operation for the duration, after a short warm-up, and
// extends the duration until an operation has ended.
func load(ctx context.Context, s subject, callers int, d time.Duration) (figure, error) {
	var (
		wg       sync.WaitGroup
		counting atomic.Bool
		stop     atomic.Bool
		done     atomic.Bool // an operation has ended while it counted, or has failed
		total    atomic.Int64
		mu       sync.Mutex
		failed   error
		samples  []time.Duration
	)
	for c := range callers {
		wg.Go(func() {
			var own []time.Duration
			n := int64(0)
			for i := 0; !stop.Load(); i++ {
				begin := time.Now()
				if err := s.do(ctx, c, i); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					done.Store(true)
					return
				}
				if counting.Load() {
					n++
					own = append(own, time.Since(begin))
					if n == 1 {
						done.Store(true)
					}
				}
			}
			total.Add(n)
			mu.Lock()
			samples = append(samples, own...)
			mu.Unlock()
		})
	}
	time.Sleep(d / 5)
	cpu, begin := cpuTime(), time.Now()
	counting.Store(true)
	for time.Sleep(d); !done.Load() && time.Since(begin) < longest; {
		time.Sleep(d)
	}
	counting.Store(false)
	took, used := time.Since(begin), cpuTime()-cpu
	stop.Store(true)
	wg.Wait()
	if failed != nil || total.Load() == 0 {
		return figure{}, errors.Join(failed, errors.New("no operation has ended"))
	}
	f := figure{
		perSecond: float64(total.Load()) / took.Seconds(),
		cpuMicros: float64(used.Microseconds()) / float64(total.Load()),
	}
	f.p50, f.p99 = quantile(samples, 0.5), quantile(samples, 0.99)
	f.p999, f.most = quantile(samples, 0.999), quantile(samples, 1)
	f.tablet, f.synced = s.batches()
	return f, nil
}

// precision is the rounding of latencies.
const precision = time.Microsecond

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return nth(d, int(q*float64(len(d)-1)))
}
