package splitter

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the splitter's configuration and its actor.

// Client carries operations to tablets. *txn.Client implements it.
type Client interface {
	// Send performs an idempotent operation at the tablet that holds the position, and
	// returns the descriptor under which it was done.
	Send(
		ctx context.Context, at wire.Position, req *pb.TabletRequest,
	) (*pb.TabletResponse, *pb.TabletDescriptor, error)
}

// Meta creates tablet boundaries. *meta.Schema implements it.
type Meta interface {
	// SplitAt creates a boundary before the row. It returns nil if there is one already.
	SplitAt(ctx context.Context, table mvcc.TableID, row string) error
}

// Overview provides recent statuses of tablets.
type Overview interface {
	// Leaders returns the latest known status of each tablet's leader. Tablets that could
	// not be asked are missing; the splitter considers them in a later turn. It does not
	// modify the messages.
	Leaders(ctx context.Context) ([]*pb.StatusResponse, error)
}

// Defaults of Config.
const (
	DefaultMaxBytes   = 96 << 20
	DefaultMaxLoad    = 250_000
	DefaultInterval   = 10 * time.Second
	DefaultMaxTablets = 1024
)

const (
	// cooldown is the time after a split by load before either side is split by load again.
	cooldown       = time.Minute
	requestTimeout = 10 * time.Second
)

// Config configures a splitter. Client, Meta and Overview are required; other zero fields
// take their defaults.
type Config struct {
	Client Client
	Meta   Meta
	// Overview selects the tablets that are worth a request of their own.
	Overview Overview

	MaxBytes uint64 // a tablet of this size is split where its size halves
	// MaxLoad is the operations per second at which a tablet is split where its load halves.
	MaxLoad    uint64
	Interval   time.Duration // pause between turns
	MaxTablets int           // no tablet is split while there are this many of users
	Logger     *slog.Logger
}

var errConfig = errors.New("splitter: Client, Meta and Overview are required")

func (c Config) withDefaults() (Config, error) {
	if c.Client == nil || c.Meta == nil || c.Overview == nil {
		return c, errConfig
	}
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.MaxLoad = cmp.Or(c.MaxLoad, DefaultMaxLoad)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.MaxTablets = cmp.Or(c.MaxTablets, DefaultMaxTablets)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}

// Splitter is the running actor. Its methods may be called concurrently.
type Splitter struct {
	*actorkit.Turns
	work *work
}

// Spawn starts the actor. It fails if a required field is missing or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Splitter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := newWork(cfg)
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: "splitter", First: cfg.Interval, Turn: func(ctx context.Context) time.Duration {
			w.turn(ctx, time.Now())
			return cfg.Interval
		},
	})
	if err != nil {
		return nil, err
	}
	return &Splitter{turns, w}, nil
}

// Status returns the number of tablets split since the splitter started, and its limits.
func (s *Splitter) Status() *pb.SplitsStatus {
	w := s.work
	return &pb.SplitsStatus{
		BySize: w.bySize.Load(), ByLoad: w.byLoad.Load(), MaxBytes: w.cfg.MaxBytes, MaxLoad: w.cfg.MaxLoad,
		MaxTablets: uint32(w.cfg.MaxTablets),
	}
}

// work is the actor's state. Only the actor's goroutine uses it, except the counters.
type work struct {
	cfg            Config
	cooldown       map[wire.Position]time.Time // by a tablet's start: when its cooldown ends
	bySize, byLoad atomic.Uint64
}

func newWork(cfg Config) *work { return &work{cfg: cfg, cooldown: map[wire.Position]time.Time{}} }
