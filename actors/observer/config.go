package observer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
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

	retryBase = 2 * time.Millisecond
)

// hintsAhead is how many cells of an observer may wait, or four for each of its runs if
// that is more, for a hint to be taken: beyond it there is a backlog, which scanners hand
// out in order.
const hintsAhead = 256

// Errors of this package.
var (
	ErrInvalid = errors.New("observer: invalid configuration")
	// ErrStillRunning: Stop's context ended before all runs did.
	ErrStillRunning = errors.New("observer: runs still going on")
)

// Registered is an observer of this process, with the id of its table.
type Registered struct {
	Spec  percolator.ObserverSpec
	Table mvcc.TableID // 0: there is none yet, and nothing is found for the observer until Relink
}

// Config of a dispatcher. Zero fields take the defaults.
type Config struct {
	Observers []Registered
	Client    Client
	// Context is called once for each run to add values to its context: the database for
	// percolator.DBFrom.
	Context func(context.Context) context.Context

	// Suspect is the timestamp up to which notifications may have been met by a process
	// that has died since: an attempt is written before their runs. It must not block,
	// and never falls. nil: there are none.
	Suspect func() mvcc.Timestamp

	Workers int // most runs at once, apart from one that each observer may always have
	// most cells of one observer that wait for a slot, and most that wait for their
	// backoff
	Queue int
	// MaxStuck is how many slots, taken by functions that ignore the end of their
	// context, are replaced; default Workers.
	MaxStuck int
	// Grace is how long after its deadline a function may take to return before it counts as stuck.
	Grace time.Duration
	// CommitTimeout bounds each step of the framework around the user's function: begin
	// and check, commit, clear.
	CommitTimeout time.Duration
	// FailureBase and FailureMax bound the backoff after a failed run: base, doubled with
	// every attempt, at most max.
	FailureBase, FailureMax time.Duration
	// RetryMax bounds the jittered backoff after a conflict, or when a node does not
	// answer, which begins with retryBase.
	RetryMax time.Duration
	// Seed of the jitter; 0 takes one from the clock.
	Seed   uint64
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Context == nil {
		c.Context = func(ctx context.Context) context.Context { return ctx }
	}
	if c.Suspect == nil {
		c.Suspect = func() mvcc.Timestamp { return 0 }
	}
	positive(&c.Workers, DefaultWorkers)
	positive(&c.Queue, DefaultQueue)
	positive(&c.MaxStuck, c.Workers)
	positive(&c.Grace, DefaultGrace)
	positive(&c.CommitTimeout, DefaultCommitTimeout)
	positive(&c.FailureBase, DefaultFailureBase)
	positive(&c.FailureMax, DefaultFailureMax)
	positive(&c.RetryMax, DefaultRetryMax)
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func positive[N int | time.Duration](v *N, def N) {
	if *v <= 0 {
		*v = def
	}
}
