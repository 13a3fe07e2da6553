// Package turns contains the common parts of benchmarks of whole clusters: a cluster of processes
// per measurement, callers that repeat an operation for a duration, and plans that measure variants in
// turns.
package turns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/test/cluster"
)

// Warmup is the time before operations count: leaders settle and caches fill.
const Warmup = time.Second

// Main runs a benchmark until it ends or is interrupted, and exits with 1 if it fails.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Builds returns the folders of a comma-separated list, each of which must contain the binaries,
// and the names by which tables show them.
func Builds(list string, binaries ...string) (folders, names []string, err error) {
	for folder := range strings.SplitSeq(list, ",") {
		for _, binary := range binaries {
			if _, err := os.Stat(filepath.Join(folder, binary)); err != nil {
				return nil, nil, fmt.Errorf("build: %w", err)
			}
		}
		if folder, err = filepath.Abs(folder); err != nil {
			return nil, nil, err
		}
		folders, names = append(folders, folder), append(names, filepath.Base(folder))
	}
	return folders, names, nil
}

// WithCluster calls f with a running cluster and the folder of its directories, which it removes
// afterwards.
func WithCluster(ctx context.Context, cfg cluster.Config,
	f func(c *cluster.Cluster, dir string) error) (err error) {
	if cfg.Dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	c, err := cluster.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Start(ctx); err != nil {
		return err
	}
	return f(c, cfg.Dir)
}

// Figure is one measurement.
type Figure struct {
	PerSecond float64
	CPU       time.Duration   // of this process, per operation
	Latencies []time.Duration // sorted
}

// Millis returns the latencies at the quantiles, 0 to 1, in milliseconds; 0 without latencies.
func (f Figure) Millis(quantiles ...float64) (out []float64) {
	for _, q := range quantiles {
		out = append(out, f.At(q).Seconds()*1000)
	}
	return out
}

// At returns the latency at a quantile, 0 to 1; 0 without latencies.
func (f Figure) At(quantile float64) time.Duration {
	if len(f.Latencies) == 0 {
		return 0
	}
	return f.Latencies[int(quantile*float64(len(f.Latencies)-1))]
}

// Repeat has each caller call fn sequentially for a duration, with the caller's index and the
// index of the call. Calls that begin during the warm-up do not count; each caller makes at least
// one that counts.
func Repeat(ctx context.Context, callers int, warmup, d time.Duration,
	fn func(ctx context.Context, caller, i int) error) (f Figure, err error) {
	took := make([][]time.Duration, callers)
	began := time.Now().Add(warmup)
	var before atomic.Int64
	timer := time.AfterFunc(warmup, func() { before.Store(int64(CPU())) })
	defer timer.Stop()
	g, ctx := errgroup.WithContext(ctx)
	for caller := range callers {
		g.Go(func() error {
			for i := 0; time.Since(began) < d || len(took[caller]) == 0; i++ {
				from := time.Now()
				if err := fn(ctx, caller, i); err != nil {
					return err
				}
				if from.After(began) {
					took[caller] = append(took[caller], time.Since(from))
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Figure{}, err
	}
	f.Latencies = slices.Concat(took...)
	f.PerSecond = float64(len(f.Latencies)) / time.Since(began).Seconds()
	f.CPU = (CPU() - time.Duration(before.Load())) / time.Duration(len(f.Latencies))
	slices.Sort(f.Latencies)
	return f, nil
}

// CPU returns the processor time of this process, user and system.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
