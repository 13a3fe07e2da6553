package scanner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/tracing"
)

// Defaults of Config.
const (
	DefaultScanners  = 4
	DefaultPage      = 128
	DefaultRequests  = 32
	DefaultHintQueue = 16 << 10
	DefaultPaceMin   = 50 * time.Millisecond
	DefaultPaceMax   = time.Second
	DefaultMinAge    = 250 * time.Millisecond
)

const (
	lease          = 30 * time.Second       // of advisory locks; a run that takes longer may be duplicated
	paceBusy       = 2 * time.Millisecond   // pause after a turn that accepted a cell
	sweepPause     = 250 * time.Millisecond // after a turn of the sweeper that resolved nothing
	sweepAge       = time.Second            // locks of younger transactions are skipped
	requestTimeout = 5 * time.Second

	minWindow = 32
	maxWindow = 4096 // as large as a dispatcher's queue

	// recheck is the approximate interval at which some node walks a tablet that the survey
	// reports clean; maxRechecks, which limits such requests per second, may lengthen it. The
	// nodes that scan a column share the work: each of n nodes walks all tablets once in n times
	// recheck, and each node's sweeper those of its node once in sweepRechecks times recheck.
	recheck = time.Minute
)

// ErrInvalid reports a configuration that lacks a required field.
var ErrInvalid = errors.New("scanner: invalid configuration")

// Dispatcher runs observers for dirty cells. *observer.Dispatcher implements it.
type Dispatcher interface {
	// Submit returns one admission per cell. It waits for the dispatcher's goroutine, never for
	// runs.
	Submit(ctx context.Context, items []notify.Dirty) ([]notify.Admission, error)
}

// Locker grants advisory locks, from the lockd of the node that leads the keys' tablets.
type Locker interface {
	// TryLock returns one answer per key. An error counts as granted.
	TryLock(ctx context.Context, owner uint64, lease time.Duration, keys ...string) ([]bool, error)
	// Unlock releases the keys that the owner holds. It does not wait.
	Unlock(owner uint64, keys ...string)
}

// Places lists the tablets.
type Places interface {
	// Tablets lists tablets in range order: those whose leader is on this node, or all.
	// The caller does not change them.
	Tablets(ctx context.Context, local bool) ([]*pb.TabletDescriptor, error)
}

// Walker requests one page of one of a tablet's groups, once. A rejection is an error.
type Walker interface {
	Walk(ctx context.Context, tablet *pb.TabletDescriptor, req *pb.WalkRequest) (*pb.WalkResponse,
		error)
}

// Resolver resolves locks and intents by their primaries. *txn.Client implements it.
type Resolver interface {
	// ResolveLock resolves the lock if its transaction is decided or expired, or its worker
	// is dead. It returns false if the transaction is alive.
	ResolveLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error)
}

// Hints selects how the hinter handles hints.
type Hints uint8

// None of them may change what observers compute.
const (
	HintsOn    Hints = iota
	HintsOff         // hints are ignored
	HintsTwice       // every hint is passed on twice; for tests
)

// Config configures a node's scanners. Dispatcher, Places and Walker are required; other zero
// fields take their defaults.
type Config struct {
	Name    string          // prefix of the actors' names; default "scanner"
	Targets []notify.Target // the observers in this process
	// Paused reports whether the column's observer is paused. Its hints are then dropped and its
	// dirty cells not walked; scans find them when it is resumed. Paused must not block and must
	// be safe for concurrent use. If it is nil, no observer is paused.
	Paused     func(notify.Target) bool
	Dispatcher Dispatcher
	Places     Places
	Walker     Walker
	Resolver   Resolver // nil disables the sweeper
	Locker     Locker   // nil disables advisory locks
	Survey     Survey   // nil: all tablets are walked in every turn
	// Observed returns the columns of a tablet led on this node that any observer of the cluster
	// watches, according to the tablet's catalogue. The sweeper covers them even if this process
	// does not run those observers. Observed must not block, and the caller does not change the
	// list. If it is nil, the sweeper covers only the targets' tables, and no intents of targets with
	// notify entries of their own.
	Observed func(tablet uint64) []notify.Target

	Hints     Hints
	HintQueue int // limit of the waiting cells; further hints are dropped
	Scanners  int // number of scanners; none if negative
	Page      int // entries per walk request
	Requests  int // walk requests per turn
	// Window limits one scanner's cells of one column that the dispatcher has, other than in
	// debounce. If it is 0, it is the target's Enough divided by Scanners, from 32 to 4096.
	Window int
	// Owner is the first of Scanners+1 owner numbers for advisory locks. If it is 0, they are
	// random.
	Owner uint64
	// PaceMin is the pause after the first turn that found nothing, less a random part up to its
	// half. Each further such turn doubles it, up to PaceMax.
	PaceMin, PaceMax time.Duration
	// MinAge is the age below which scanners leave changes to the hints, unless hints are off. If it
	// is negative, they leave none.
	MinAge time.Duration
	Seed   uint64 // seed of all random choices; if 0, taken from the clock
	Now    func() time.Time
	Logger *slog.Logger
	// Traces receives the traces found by walks; nil disables tracing.
	Traces *tracing.Book
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "scanner"
	}
	if c.Scanners == 0 {
		c.Scanners = DefaultScanners
	}
	c.HintQueue = actorkit.Positive(c.HintQueue, DefaultHintQueue)
	c.Page = actorkit.Positive(c.Page, DefaultPage)
	c.Requests = actorkit.Positive(c.Requests, DefaultRequests)
	c.PaceMin = actorkit.Positive(c.PaceMin, DefaultPaceMin)
	c.PaceMax = actorkit.Positive(c.PaceMax, DefaultPaceMax)
	if c.MinAge == 0 {
		c.MinAge = DefaultMinAge
	}
	if c.Paused == nil {
		c.Paused = func(notify.Target) bool { return false }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Seed == 0 {
		c.Seed = uint64(c.Now().UnixNano())
	}
	if c.Owner == 0 {
		c.Owner = rand.New(rand.NewPCG(c.Seed, 1)).Uint64()>>1 + 1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// window returns the maximum of one scanner's cells of the target in the dispatcher. Each walk
// skips all cells in flight, so a larger window slows down finding the next.
func (c *Config) window(t notify.Target) int {
	if c.Window > 0 {
		return c.Window
	}
	return min(max(minWindow, t.Enough/max(c.Scanners, 1)), maxWindow)
}

func (c Config) check() error {
	if c.Dispatcher == nil || c.Places == nil || c.Walker == nil {
		return fmt.Errorf("%w: Dispatcher, Places and Walker are required", ErrInvalid)
	}
	return nil
}
