package workload

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// Load configures the amount of work of a workload. It ends after Duration or when ctx does.
type Load struct {
	Workers  int
	Duration time.Duration
	Seed     uint64
	// Pause is the longest pause of a worker between two operations; 0 means none. With virtual
	// time it must be positive: that time advances only while all goroutines wait.
	Pause time.Duration
	// Others are further handles of the same database: workers use all in rotation. The final
	// checks use the workload's own.
	Others []*percolator.DB
	// Fresh, if set, creates a handle without history, as in a new process; done closes it.
	Fresh func() (db *percolator.DB, done func())
	// Tally, if set, counts the operations.
	Tally *Tally
	// Keep, if set, receives the history of a workload that has found an anomaly, as a value
	// that can be encoded as JSON.
	Keep func(workload string, history any)
}

func (l Load) keep(workload string, history any, err error) error {
	if err != nil && l.Keep != nil {
		l.Keep(workload, history)
	}
	return err
}

// db is the worker's handle.
func (l Load) db(own *percolator.DB, worker int) *percolator.DB {
	if i := worker % (len(l.Others) + 1); i > 0 {
		return l.Others[i-1]
	}
	return own
}

// run makes the workers repeat fn until the time is up, and joins their errors. It ignores those
// that faults and contention explain (excused); any other ends all workers.
func (l Load) run(ctx context.Context, fn func(ctx context.Context, worker int,
	rng *rand.Rand) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.Duration)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	l.Tally.begin()
	for w := range l.Workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(l.Seed, uint64(w)))
			for ctx.Err() == nil {
				err := fn(ctx, w, rng)
				l.Tally.count(err)
				if err != nil && ctx.Err() == nil && !excused(err) {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					cancel()
				}
				l.rest(ctx, rng)
			}
		})
	}
	wg.Wait()
	l.Tally.end()
	return errors.Join(errs...)
}

func (l Load) rest(ctx context.Context, rng *rand.Rand) {
	if l.Pause <= 0 {
		return
	}
	_ = pause(ctx, 1+time.Duration(rng.Int64N(int64(l.Pause))))
}

// excused reports whether err is one that a workload may get under faults and contention; none of
// them violates a guarantee.
func excused(err error) bool {
	for _, ok := range []error{
		percolator.ErrConflict, percolator.ErrLocked, percolator.ErrCommitUnknown,
		percolator.ErrOverloaded,
		percolator.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, ok) {
			return true
		}
	}
	return false
}

// outcome is what the error of a commit says: done, surely not done (neither), or
// unknown. Only ErrConflict and ErrLocked mean surely not done.
func outcome(err error) (done, unknown bool) {
	refused := errors.Is(err, percolator.ErrConflict) || errors.Is(err, percolator.ErrLocked)
	switch {
	case err == nil:
		return true, false
	case refused && !errors.Is(err, percolator.ErrCommitUnknown):
		return false, false
	}
	return false, true
}

// patiently repeats a read until it succeeds, returns an error that is not excused, or ctx
// ends: the faults may not be over yet.
func patiently(ctx context.Context, read func() error) error {
	for {
		err := read()
		if err == nil || ctx.Err() != nil || !excused(err) {
			return err
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
}

// Tally counts what became of a workload's operations. Safe for concurrent use. A Load without one
// counts nothing.
type Tally struct {
	mu      sync.Mutex
	figures Figures
	last    time.Time // the last success, or the beginning
}

// Figures are what a Tally has counted.
type Figures struct {
	Done, Unknown, Failed int
	// Gap is the longest time in which no operation of any worker was done.
	Gap time.Duration
}

// Figures returns what has been counted so far; a nil Tally counts nothing.
func (t *Tally) Figures() Figures {
	if t == nil {
		return Figures{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.figures
}

func (t *Tally) begin() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

func (t *Tally) count(err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.figures.Done++
		t.gap()
	case errors.Is(err, percolator.ErrCommitUnknown):
		t.figures.Unknown++
	default:
		t.figures.Failed++
	}
}

func (t *Tally) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gap()
}

// gap takes note of the time since the last success. Called with mu held.
func (t *Tally) gap() {
	now := time.Now()
	t.figures.Gap = max(t.figures.Gap, now.Sub(t.last))
	t.last = now
}
