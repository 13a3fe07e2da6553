package splitter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Client carries operations to tablets; *txn.Client has it.
type Client interface {
	Send(ctx context.Context, at wire.Position, req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error)
}

// Meta makes tablet boundaries; *cluster.Meta has it.
type Meta interface {
	// SplitAt makes a boundary before the row; one that is there already is no error.
	SplitAt(ctx context.Context, table mvcc.TableID, row string) error
}

// Overview is what tablets say of themselves.
type Overview interface {
	// Leaders is what the tablets' leaders have said lately, of those that could be
	// asked; the others are looked at later. The splitter does not change the messages.
	Leaders(ctx context.Context) ([]*pb.StatusResponse, error)
}

// Defaults of Config.
const (
	DefaultMaxBytes   = 96 << 20
	DefaultMaxLoad    = 250_000
	DefaultInterval   = 10 * time.Second
	DefaultCooldown   = time.Minute
	DefaultMaxTablets = 1024
)

// Config is what a splitter is started with. Client and Meta are required; zero fields
// take the defaults.
type Config struct {
	Name   string // of the actor; default "splitter"
	Client Client
	Meta   Meta
	// Overview tells which tablets are worth a question of their own; nil: each is asked.
	Overview Overview

	MaxBytes   uint64        // a larger tablet is split where its size halves
	MaxLoad    uint64        // operations per second; a busier tablet is split where its load halves
	Interval   time.Duration // between looks at all tablets
	Cooldown   time.Duration // after a split by load
	MaxTablets int           // none is split when there are so many
	Timeout    time.Duration // of one request; default 10 s
	Logger     *slog.Logger
}

var errConfig = errors.New("splitter: Client and Meta are required")

func (c Config) withDefaults() (Config, error) {
	if c.Client == nil || c.Meta == nil {
		return c, errConfig
	}
	if c.Name == "" {
		c.Name = "splitter"
	}
	orDefault(&c.MaxBytes, DefaultMaxBytes)
	orDefault(&c.MaxLoad, DefaultMaxLoad)
	orDefault(&c.Interval, DefaultInterval)
	orDefault(&c.Cooldown, DefaultCooldown)
	orDefault(&c.MaxTablets, DefaultMaxTablets)
	orDefault(&c.Timeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func orDefault[T uint64 | int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Splitter is the running actor. Its methods may be used concurrently.
type Splitter struct {
	*actorkit.Turns
	work *work
}

// Spawn starts the actor. Errors: a required field is missing, or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Splitter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := newWork(cfg)
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: cfg.Name, First: cfg.Interval, Turn: func(ctx context.Context) time.Duration {
			w.turn(ctx, time.Now())
			return cfg.Interval
		},
	})
	if err != nil {
		return nil, fmt.Errorf("splitter: spawn: %w", err)
	}
	return &Splitter{turns, w}, nil
}

// Splits is how many tablets it has split since it began, for their size and for their load.
func (s *Splitter) Splits() (bySize, byLoad uint64) {
	return s.work.bySize.Load(), s.work.byLoad.Load()
}

// work is what the actor does; its own, except the counters.
type work struct {
	cfg            Config
	cooling        map[wire.Position]time.Time // tablets by start: not to be split by load before
	bySize, byLoad atomic.Uint64
}

func newWork(cfg Config) *work { return &work{cfg: cfg, cooling: map[wire.Position]time.Time{}} }
