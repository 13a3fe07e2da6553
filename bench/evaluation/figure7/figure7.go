// Package figure7 measures the paper's document clustering (§3.1, Figure 7): the delay of an
// incremental clustering by observers, as the crawl rate rises, against a batch job.
package figure7

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
)

// Measurements returns the measurement.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "figure7", Title: "Document clustering, incremental and batch (§3.1, Figure 7)",
		Budget: 4 * time.Minute, Run: run,
	}}
}

const (
	// leastRate is the lowest measured rate, in documents/s: lower ones would yield too few documents.
	leastRate = 5
	// waiting is the number of documents of an open loop that may wait to be clustered.
	waiting = 4096
	callers = 64 // of the closed loop that finds the highest rate
)

// sizes are the parameters of a run.
type sizes struct {
	documents []int
	window    time.Duration // of each rate
}

func run(ctx context.Context, r *harness.Run) error {
	s := sizes{documents: []int{10_000, 100_000, 1_000_000}, window: 5 * time.Second}
	if r.Smoke {
		s = sizes{documents: []int{2000}, window: 500 * time.Millisecond}
	}
	r.Axes("delay", "crawl rate, % of the repository an hour", "delay from load to clustered, ms", true, true)
	r.Axes("size", "documents", "delay at 1 % an hour, ms", true, true)
	for i, n := range s.documents {
		if err := measure(ctx, r, s, n, i == len(s.documents)-1); err != nil {
			return fmt.Errorf("%d documents: %w", n, err)
		}
	}
	r.Paper("delay at 1 % an hour", size(s.documents[len(s.documents)-1]), "2 s / 30 min = 1/1000 (10⁹ documents, 240 machines)")
	r.Note("Delays count from the time at which a document was due, in an open loop, until a reader finds its cluster. "+
		"Rates below %d documents/s are measured at that rate. The batch job's delay is one and a half times its duration, "+
		"as the paper counts it: a document waits for half a job and for its own. Documents have %d bytes.", leastRate, documentBytes)
	r.Note("The batch job reads documents of its own binary format, dropped from the page cache before, and writes clusters only.")
	r.Note("The repository is loaded by `load --bulk`. All clusters are compared with those of the sequential algorithm in the order of the commits.")
	return nil
}

func size(n int) string { return fmt.Sprintf("%d documents", n) }

// measure measures a repository of n documents: the delay at 1 % an hour or, of the largest, at all
// rates.
func measure(ctx context.Context, r *harness.Run, s sizes, n int, largest bool) (err error) {
	dir, err := os.MkdirTemp(r.Dir, "figure7-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := build(n, r.Seed)
	batchDir := filepath.Join(dir, "batch")
	if err := os.Mkdir(batchDir, 0o700); err != nil {
		return err
	}
	batch, err := newBatchJob(batchDir, p.keys)
	if err != nil {
		return err
	}
	defer func() {
		if p.node != nil {
			err = errors.Join(err, p.node.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := p.open(ctx, dir, r.Binary); err != nil {
		return err
	}
	r.Logf("%d documents are loaded", n)
	c := newCrawl(ctx, p)
	defer c.close()
	// The highest rate first, since others are fractions of it.
	if largest {
		if err := c.saturate(ctx, s.window); err != nil {
			return err
		}
	}
	for range r.Rounds {
		if err := c.round(ctx, r, s, batch, largest); err != nil {
			return err
		}
	}
	return p.check(ctx, int(c.added.Load()))
}

// round measures the batch job once, and the delay at each rate.
func (c *crawl) round(ctx context.Context, r *harness.Run, s sizes, batch *batchJob, largest bool) error {
	began := time.Now()
	clusters, err := batch.run()
	if err != nil {
		return err
	}
	took := time.Since(began)
	for doc, of := range clusters {
		if of != c.p.of[doc] {
			return fmt.Errorf("the batch job puts document %d into cluster %d, not %d", doc, of, c.p.of[doc])
		}
	}
	n := float64(c.p.n)
	perHour := func(rate float64) float64 { return 100 * rate * 3600 / n }
	var rates []float64
	if idle := n / 100 / 3600; !largest || idle < leastRate {
		rates = append(rates, idle)
	}
	if largest {
		for _, percent := range []float64{10, 50} {
			rates = append(rates, n*percent/100/3600)
		}
		for _, part := range []float64{0.1, 0.25, 0.5, 0.75, 0.9} {
			rates = append(rates, part*c.highest)
		}
	}
	for i, rate := range rates {
		l, err := harness.OpenLoop(ctx, max(rate, leastRate), s.window, waiting, c.load)
		if errors.Is(err, harness.ErrLoad) {
			r.Note("%.0f documents/s, %.0f %% an hour, are too many: %v.", rate, perHour(rate), err)
		} else if err != nil {
			return err
		}
		row := fmt.Sprintf("%s, %s %% an hour", size(c.p.n), percents(perHour(rate)))
		r.Value("delay", row, "ms p5", l.Millis(0.05))
		r.Value("delay", row, "ms p50", l.Millis(0.5))
		r.Value("delay", row, "ms p95", l.Millis(0.95))
		// The job must also cluster the documents that arrive while it runs, and so takes longer. A
		// document waits for half a job on average, and then for the next.
		factor := 1 / max(1-rate*took.Seconds()/n, 1e-3)
		job := 1.5 * took.Seconds() * 1000 * factor
		r.Value("delay", row, "ms batch job", job)
		if largest {
			r.Point("delay", "observers, p50", perHour(rate), l.Millis(0.5))
			r.Point("delay", "observers, p95", perHour(rate), l.Millis(0.95))
			r.Point("delay", "batch job", perHour(rate), job)
		}
		if i == 0 {
			const table = "delay at 1 % an hour"
			r.Value(table, size(c.p.n), "ms p50", l.Millis(0.5))
			r.Value(table, size(c.p.n), "ms batch job", job)
			r.Value(table, size(c.p.n), "documents for 1/1000", n*l.Millis(0.5)*1000/job)
			r.Ratio(table, size(c.p.n), l.Millis(0.5)/job, "< 0.001")
			r.Point("size", "observers, p50", n, l.Millis(0.5))
			r.Point("size", "batch job", n, job)
		}
	}
	if largest {
		r.Value("cross-over", size(c.p.n), "documents/s", c.highest)
		r.Value("cross-over", size(c.p.n), "% of the repository an hour", perHour(c.highest))
		r.Paper("cross-over", size(c.p.n), "40 % an hour")
	}
	return nil
}

// percents rounds to two digits.
func percents(p float64) string {
	if p < 100 {
		return fmt.Sprintf("%.2g", p)
	}
	digits := math.Pow(10, math.Floor(math.Log10(p))-1)
	return fmt.Sprintf("%.0f", math.Round(p/digits)*digits)
}

// crawl loads new documents and waits until they are clustered.
type crawl struct {
	p       *repository
	added   atomic.Int64
	highest float64 // documents/s

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed when the document is clustered
	wake    chan struct{}
	stop    context.CancelFunc
	ended   sync.WaitGroup
	failed  atomic.Pointer[error]
}

func newCrawl(ctx context.Context, p *repository) *crawl {
	c := &crawl{p: p, waiting: map[string]chan struct{}{}, wake: make(chan struct{}, 1)}
	ctx, c.stop = context.WithCancel(ctx)
	c.ended.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.wake:
			}
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = c.look(ctx); err != nil {
					c.failed.Store(&err)
					return
				}
			}
		}
	})
	return c
}

func (c *crawl) close() {
	c.stop()
	c.ended.Wait()
}

// saturate finds the highest rate by a closed loop.
func (c *crawl) saturate(ctx context.Context, window time.Duration) error {
	f, err := turns.Repeat(ctx, callers, window/5, window, func(ctx context.Context, _, _ int) error { return c.load(ctx, 0) })
	if err != nil {
		return err
	}
	c.highest = f.PerSecond
	return nil
}

// load writes the next document and waits until it is clustered.
func (c *crawl) load(ctx context.Context, _ int) error {
	document := uint32(c.p.n) + uint32(c.added.Add(1)) - 1
	row := documentRow(document)
	err := c.p.node.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row, documentText, []byte(strings.Repeat("x", documentBytes)))
		return nil
	})
	if err != nil {
		return err
	}
	done := make(chan struct{})
	c.mu.Lock()
	c.waiting[row] = done
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	// Observers lose no document: one that takes a minute is a fault.
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-deadline.C:
		if failed := c.failed.Load(); failed != nil {
			return *failed
		}
		return fmt.Errorf("%s is not clustered after a minute", row)
	}
}

// look reads the clusters of up to 256 waiting documents, ends the waiting for those that have one,
// and reports whether others still wait.
func (c *crawl) look(ctx context.Context) (more bool, err error) {
	const atOnce = 256
	var keys []percolator.CellKey
	c.mu.Lock()
	for row := range c.waiting {
		if keys = append(keys, percolator.CellKey{Row: row, Column: documentCluster}); len(keys) == atOnce {
			break
		}
	}
	c.mu.Unlock()
	if len(keys) == 0 {
		return false, nil
	}
	var found []percolator.Cell
	err = c.p.node.DB().View(ctx, func(ctx context.Context, s *percolator.Snapshot) (err error) {
		found, err = s.GetMulti(ctx, keys...)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cell := range found {
		close(c.waiting[cell.Row])
		delete(c.waiting, cell.Row)
	}
	return len(c.waiting) > 0, err
}
