package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/percolator-go/percolator/bench/turns"
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
	turns.Figure

	tablet, synced float64
}

// cpuMicros returns the user and system time per operation.
func (f figure) cpuMicros() float64 { return float64(f.CPU.Nanoseconds()) / 1000 }

// results holds all measurements by kind, number of callers and round.
type results map[string]map[int][]figure

// best returns the measurement with the highest rate: load from other programs only lowers it.
func (r results) best(kind string, callers int) (best figure, ok bool) {
	for _, f := range r[kind][callers] {
		if f.PerSecond >= best.PerSecond {
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

// load makes the callers repeat the operation for the duration, after a short warm-up.
func load(ctx context.Context, s subject, callers int, d time.Duration) (f figure, err error) {
	f.Figure, err = turns.Repeat(ctx, callers, d/5, d, s.do)
	f.tablet, f.synced = s.batches()
	return f, err
}

// precision is the rounding of latencies.
const precision = time.Microsecond

func quantile(d []time.Duration, q float64) time.Duration {
	return turns.Figure{Latencies: slices.Sorted(slices.Values(d))}.At(q)
}
