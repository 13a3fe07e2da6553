package observer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/tracing"
)

// Defaults of Config.
const (
	DefaultWorkers       = 64
	DefaultQueue         = 4096
	DefaultCommitTimeout = 20 * time.Second
	DefaultGrace         = 2 * time.Second
	DefaultFailureBase   = 100 * time.Millisecond
	DefaultFailureMax    = time.Minute
	DefaultRetryMax      = 500 * time.Millisecond
	DefaultLoopRuns      = 100

	retryBase = 2 * time.Millisecond
)

// hintsAhead is the number of queued cells of an observer from which hints get notify.Full, unless
// four times its concurrent runs, or four times the size of its batches, is more. More cells are a
// backlog, which scanners hand out in order.
const hintsAhead = 256

// Errors of this package.
var (
	ErrInvalid = errors.New("observer: invalid configuration")
	// ErrStillRunning is returned by Stop if its context ends before all runs have.
	ErrStillRunning = errors.New("observer: runs are still in progress")
)

// Registered is an observer of this process, with the id of its table.
type Registered struct {
	Spec percolator.ObserverSpec
	Link
}

// Target returns the column of the observer's notify cells; ok is false if its table does not exist.
func (r *Registered) Target() (t notify.Target, ok bool) {
	t = notify.Target{Table: r.Table, Column: r.Spec.Column.Name}
	if r.Own {
		t.Class, t.Column = mvcc.ClassAck, r.Spec.Name
	}
	return t, r.Table != 0
}

// Link is the location of an observer's notify entries.
type Link struct {
	Table mvcc.TableID // 0 if it does not exist yet: no cell is admitted until Relink
	// Own reports that the entries are at the observer's acknowledgment cells, because another
	// observer has those at the observed cells.
	Own bool
}

// Config configures a dispatcher. Client is required; other zero fields take their defaults.
type Config struct {
	Observers []Registered
	Client    Client
	// Context adds to its argument what the context of every run has: the database for
	// percolator.DBFrom.
	Context func(context.Context) context.Context

	// Suspect returns the timestamp up to which a process that is dead by now may have run
	// changes. An attempt is recorded before the run of a change up to it. Suspect must not block,
	// and its results must not decrease. Nil means that there are no such changes.
	Suspect func() mvcc.Timestamp

	// Versions reports whether acknowledgments may have versions of observers
	// (version.ObserverVersions). Nil means that they may.
	Versions func() bool

	Workers int // limit of concurrent batches; an observer without a batch may start one more
	// Queue limits each of three numbers: the queued cells of one observer, its cells in debounce,
	// and the cells in backoff of all observers.
	Queue int
	// MaxStuck limits the slots that are replaced because their functions ignore the cancellation
	// of their contexts. Defaults to Workers.
	MaxStuck int
	// Grace is the time after its deadline in which a function may still return before it counts
	// as stuck.
	Grace time.Duration
	// CommitTimeout limits each step around the user's function: start and check, commit, clear.
	CommitTimeout time.Duration
	// FailureBase and FailureMax are the first and the longest backoff after failed runs; it
	// doubles with each attempt.
	FailureBase, FailureMax time.Duration
	// RetryMax limits the jittered backoff after a conflict or an unavailable node. It starts at
	// retryBase.
	RetryMax time.Duration
	// LoopRuns is the number of runs of one row within 10 s, each caused by the last, after which the next
	// ones wait with growing pauses. Defaults to 100; negative disables it.
	LoopRuns int
	// Refused announces to the other nodes that an external service refuses the observer for d. It
	// must not block. It is called at most about 200 times per second for each observer. Nil means
	// that there are no other nodes.
	Refused func(observer string, d time.Duration)
	// Traces maps changes to their traces; nil disables tracing of runs.
	Traces *tracing.Book
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Context == nil {
		c.Context = func(ctx context.Context) context.Context { return ctx }
	}
	if c.Suspect == nil {
		c.Suspect = func() mvcc.Timestamp { return 0 }
	}
	if c.Refused == nil {
		c.Refused = func(string, time.Duration) {}
	}
	c.Workers = actorkit.Positive(c.Workers, DefaultWorkers)
	c.Queue = actorkit.Positive(c.Queue, DefaultQueue)
	c.MaxStuck = actorkit.Positive(c.MaxStuck, c.Workers)
	c.Grace = actorkit.Positive(c.Grace, DefaultGrace)
	c.CommitTimeout = actorkit.Positive(c.CommitTimeout, DefaultCommitTimeout)
	c.FailureBase = actorkit.Positive(c.FailureBase, DefaultFailureBase)
	c.FailureMax = actorkit.Positive(c.FailureMax, DefaultFailureMax)
	c.RetryMax = actorkit.Positive(c.RetryMax, DefaultRetryMax)
	if c.LoopRuns == 0 {
		c.LoopRuns = DefaultLoopRuns
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// backoff returns base doubled n times, limited to most.
func backoff(base, most time.Duration, n int) time.Duration {
	d := base
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}
