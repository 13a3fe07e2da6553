// Package turns contains the common parts of benchmarks of whole clusters: a cluster of processes
// per measurement, callers that repeat an operation for a duration, and ratios of builds that are
// measured in turns.
package turns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/test/cluster"
)

// Warmup is the time before operations count: leaders settle and caches fill.
const Warmup = time.Second

// Builds returns the paths of the binaries in a comma-separated list of builds, each a folder
// with the binary percolator.
func Builds(list string) (binaries []string, err error) {
	for b := range strings.SplitSeq(list, ",") {
		binary, err := filepath.Abs(filepath.Join(b, "percolator"))
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(binary); err != nil {
			return nil, fmt.Errorf("-builds: %w", err)
		}
		binaries = append(binaries, binary)
	}
	return binaries, nil
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
	Latencies []time.Duration // sorted
}

// At returns the latency at a quantile, 0 to 1; 0 without latencies.
func (f Figure) At(quantile float64) time.Duration {
	if len(f.Latencies) == 0 {
		return 0
	}
	return f.Latencies[int(quantile*float64(len(f.Latencies)-1))].Round(10 * time.Microsecond)
}

// Repeat has each caller call fn sequentially for a duration, with the caller's index and the
// index of the call.
func Repeat(ctx context.Context, callers int, d time.Duration,
	fn func(ctx context.Context, caller, i int) error) (f Figure, err error) {
	took := make([][]time.Duration, callers)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for caller := range callers {
		g.Go(func() error {
			for i := 0; time.Since(began) < d; i++ {
				from := time.Now()
				if err := fn(ctx, caller, i); err != nil {
					return err
				}
				took[caller] = append(took[caller], time.Since(from))
			}
			return nil
		})
	}
	err = g.Wait()
	f.Latencies = slices.Concat(took...)
	f.PerSecond = float64(len(f.Latencies)) / time.Since(began).Seconds()
	slices.Sort(f.Latencies)
	return f, err
}

// Ratios formats the median, the least and the greatest of the ratios. There must be at least one.
func Ratios(all []float64) string {
	r := slices.Sorted(slices.Values(all))
	return fmt.Sprintf("median %.2f (%.2f to %.2f)", r[len(r)/2], r[0], r[len(r)-1])
}
