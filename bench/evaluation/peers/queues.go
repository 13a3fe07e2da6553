package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// Queues of jobs. A client commits a job durably, a handler starts, and the handler commits a
// result of its own durably, together with the acknowledgment if the system can. Every system is a
// server reached through a socket; the handlers of ours run in the server, as observers do.

// A queue is a running system with handlers.
type queue struct {
	// put returns when the job is durable.
	put func(ctx context.Context, job int) error
	// hold opens a snapshot and returns a function that closes it, after a read through it; nil in a
	// system without snapshots.
	hold func(ctx context.Context) (release func() error, err error)
	// results returns the number of durable results, and of different jobs with one.
	results func(ctx context.Context) (all, jobs int, err error)
	// atLeastOnce says that a job may have several results.
	atLeastOnce bool
	// cpu returns the processor time of other processes.
	cpu   func() time.Duration
	close func(ctx context.Context) error
}

type queueKind struct {
	name string
	open func(ctx context.Context, dir string, jobs *tracker) (*queue, error)
}

var queueKinds = []queueKind{
	{ours, openQueue},
	{"River", openRiver},
	{"PgQ", openPgQ},
	{"JetStream", openJetStream},
}

// tracker follows jobs from their commit to the commit of their handlers. Safe for concurrent use.
type tracker struct {
	mu   sync.Mutex
	jobs map[int]*tracked
}

type tracked struct {
	started time.Time
	done    chan struct{}
}

// start records that a job's handler starts; only the first start counts.
func (t *tracker) start(job int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.jobs[job]; j != nil && j.started.IsZero() {
		j.started = now
	}
}

// finish records that a job's handler has committed.
func (t *tracker) finish(job int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.jobs[job]; j != nil {
		delete(t.jobs, job)
		close(j.done)
	}
}

// run puts a job and waits until its handler has committed. It returns the time from the commit of
// the job, as its client sees it, to the start of the handler: 0 if that was earlier.
func (t *tracker) run(ctx context.Context, q *queue, job int) (time.Duration, error) {
	j := &tracked{done: make(chan struct{})}
	t.mu.Lock()
	t.jobs[job] = j
	t.mu.Unlock()
	if err := q.put(ctx, job); err != nil {
		return 0, err
	}
	committed := time.Now()
	select {
	case <-j.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("job %d is not finished: %w", job, context.Cause(ctx))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, j.started.Sub(committed)), nil
}

// queueSizes are the parameters of the measurements of queues.
type queueSizes struct {
	rates       []float64     // jobs per second of the open loops
	open        time.Duration // of each open loop
	outstanding int           // jobs of the closed loop at any time
	closed      time.Duration // of the closed loop
	free        time.Duration // of the closed loop before and after a held snapshot
	held        time.Duration // of the closed loop with one
}

func queueSizesOf(r *harness.Run) queueSizes {
	if r.Smoke {
		return queueSizes{[]float64{100}, 300 * time.Millisecond, 32, 300 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond}
	}
	return queueSizes{[]float64{300, 1000}, 2 * time.Second, 256, 2 * time.Second, 4 * time.Second, 24 * time.Second}
}

// runQueues measures every installed queue in turns: latencies at constant rates, then the rate of a
// closed loop. Then each once under a held snapshot.
func runQueues(ctx context.Context, r *harness.Run) error {
	sizes := queueSizesOf(r)
	var kinds []queueKind
	for _, k := range queueKinds {
		if missing := missingFor(k.name); missing != nil {
			r.Logf("skipped %s: %v", k.name, missing)
			r.Note("%s was skipped: %v.", k.name, missing)
			continue
		}
		kinds = append(kinds, k)
	}
	for range r.Rounds {
		var rates []float64
		for _, k := range kinds {
			rate, err := measureQueue(ctx, r, k, sizes)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			rates = append(rates, rate)
			if k.name != ours {
				r.Ratio(queueTable, "jobs/s: "+ours+" / "+k.name, rates[0]/rate, "")
			}
		}
	}
	r.Axes(heldPlot, fmt.Sprintf("s; a snapshot is held from %v to %v", sizes.free.Seconds(), (sizes.free+sizes.held).Seconds()), "jobs/s", false, false)
	for _, k := range kinds {
		if err := measureHeld(ctx, r, k, sizes); err != nil {
			return fmt.Errorf("%s, held snapshot: %w", k.name, err)
		}
	}
	r.Note("Start: from the client's commit to the start of the handler. End: from the time at which the job was due to the handler's own commit. "+
		"River fetches at most every millisecond (its default is 100 ms), PgQ ticks every %v, JetStream acknowledges its results at least once.", tickEvery)
	return nil
}

const queueTable, heldTable, heldPlot = "queues", "one held snapshot", "held-snapshot"

// withQueue calls do with a new queue and checks at the end that every job has one result, or at
// least one if the queue is atLeastOnce.
func withQueue(ctx context.Context, r *harness.Run, k queueKind, do func(q *queue, run func(ctx context.Context) (time.Duration, error)) error) error {
	return harness.InDir(r.Dir, func(dir string) (err error) {
		t := &tracker{jobs: map[int]*tracked{}}
		q, err := k.open(ctx, dir, t)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, q.close(context.WithoutCancel(ctx))) }()
		var jobs atomic.Int64
		run := func(ctx context.Context) (time.Duration, error) { return t.run(ctx, q, int(jobs.Add(1))) }
		if err := do(q, run); err != nil {
			return err
		}
		all, different, err := q.results(ctx)
		if want := int(jobs.Load()); err == nil && (different != want || all != want && !q.atLeastOnce) {
			err = fmt.Errorf("%d of %d jobs have results, %d results in all", different, want, all)
		}
		return err
	})
}

// measureQueue returns the rate of the closed loop.
func measureQueue(ctx context.Context, r *harness.Run, k queueKind, sizes queueSizes) (rate float64, err error) {
	err = withQueue(ctx, r, k, func(q *queue, run func(context.Context) (time.Duration, error)) error {
		if _, err := closedLoop(ctx, 8, sizes.closed/8, run); err != nil { // warms up
			return err
		}
		for _, perSecond := range sizes.rates {
			starts := harness.NewLatencies()
			ends, err := harness.OpenLoop(ctx, perSecond, sizes.open, 10*sizes.outstanding, func(ctx context.Context, _ int) error {
				d, err := run(ctx)
				starts.Record(d)
				return err
			})
			at := fmt.Sprintf(", %.0f/s", perSecond)
			if errors.Is(err, harness.ErrLoad) {
				r.Note("%s%s: %v", k.name, at, err)
			} else if err != nil {
				return err
			}
			for _, p := range []struct {
				name string
				at   float64
			}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}} {
				r.Value(queueTable+at, k.name, "start, ms "+p.name, starts.Millis(p.at))
				r.Value(queueTable+at, k.name, "end, ms "+p.name, ends.Millis(p.at))
			}
		}
		before := harness.CPUOf() + q.cpu()
		n, err := closedLoop(ctx, sizes.outstanding, sizes.closed, run)
		rate = float64(n) / sizes.closed.Seconds()
		r.Value(queueTable, k.name, "jobs/s", rate)
		r.Value(queueTable, k.name, "µs CPU/job", float64((harness.CPUOf()+q.cpu()-before).Microseconds())/float64(max(1, n)))
		return err
	})
	return rate, err
}

// closedLoop keeps jobs outstanding for d and returns how many finished in that time.
func closedLoop(ctx context.Context, outstanding int, d time.Duration, run func(context.Context) (time.Duration, error)) (int, error) {
	var finished atomic.Int64
	err := keepOutstanding(ctx, outstanding, time.Now().Add(d), &finished, run)
	return int(finished.Load()), err
}

// keepOutstanding keeps jobs outstanding until end, and counts those that have finished by then.
func keepOutstanding(ctx context.Context, outstanding int, end time.Time, finished *atomic.Int64,
	run func(context.Context) (time.Duration, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	for range outstanding {
		g.Go(func() error {
			for time.Now().Before(end) {
				if _, err := run(ctx); err != nil {
					return err
				}
				if time.Now().Before(end) {
					finished.Add(1)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// measureHeld runs a closed loop, holds a snapshot for most of it, and records the rates of short
// windows.
func measureHeld(ctx context.Context, r *harness.Run, k queueKind, sizes queueSizes) error {
	const windows = 6 // of each free phase
	window := sizes.free / windows
	return withQueue(ctx, r, k, func(q *queue, run func(context.Context) (time.Duration, error)) error {
		if q.hold == nil {
			r.Note("%s has no snapshots; its line is the plain rate.", k.name)
			q.hold = func(context.Context) (func() error, error) { return func() error { return nil }, nil }
		}
		if _, err := closedLoop(ctx, sizes.outstanding, sizes.free, run); err != nil { // warms up
			return err
		}
		var finished atomic.Int64
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error {
			end := time.Now().Add(2*sizes.free + sizes.held + window)
			return keepOutstanding(ctx, sizes.outstanding, end, &finished, run)
		})
		var rates []float64
		watch := func(d time.Duration) {
			for range int(d / window) {
				began, before := time.Now(), finished.Load()
				select {
				case <-time.After(window):
				case <-ctx.Done():
					return
				}
				rates = append(rates, float64(finished.Load()-before)/time.Since(began).Seconds())
				r.Point(heldPlot, k.name, window.Seconds()*float64(len(rates)), rates[len(rates)-1])
			}
		}
		watch(sizes.free)
		before := median(rates)
		release, err := q.hold(ctx)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		watch(sizes.held)
		held := median(rates[max(0, len(rates)-windows):])
		err = release()
		watch(sizes.free)
		r.Value(heldTable, k.name, "jobs/s before", before)
		r.Value(heldTable, k.name, fmt.Sprintf("at the end of %v", sizes.held), held)
		r.Value(heldTable, k.name, fmt.Sprintf("in the %v after its release", sizes.free), median(rates[max(0, len(rates)-windows):]))
		aim := ""
		if k.name == ours {
			aim = "≥ 0.9"
		}
		r.Ratio(heldTable, k.name, held/cmp.Or(before, 1), aim)
		return errors.Join(err, g.Wait())
	})
}

// median returns the middle of the values; 0 without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
