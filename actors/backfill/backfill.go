package backfill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
)

// Defaults of Config.
const (
	DefaultPage       = 512
	DefaultMaxWaiting = 2048
	DefaultPaceIdle   = 5 * time.Second
	DefaultPaceWait   = 50 * time.Millisecond
	DefaultPaceRetry  = time.Second
	DefaultTimeout    = 30 * time.Second
)

// ErrInvalid: the configuration lacks something.
var ErrInvalid = errors.New("backfill: invalid configuration")

// Meta keeps the catalogue and the records of back-fills: cluster.Meta.
type Meta interface {
	// Sync gives every tablet the newest catalogue and returns when they have applied it.
	Sync(ctx context.Context) error
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
	// Backfills are the records of the observers' last back-fills, by observer; of each
	// there may be none.
	Backfills(ctx context.Context, observers []*pb.ObserverInfo) (map[string]*pb.Backfill, error)
	// SaveBackfill stores progress; false if the back-fill is to end, and nothing was stored.
	SaveBackfill(ctx context.Context, b *pb.Backfill) (goesOn bool, err error)
	// ForgetObserver takes a retired observer's entry out of the catalogue.
	ForgetObserver(ctx context.Context, name string) error
}

// Config of a Job. Zero fields take the defaults.
type Config struct {
	Name   string // of the actor; "backfill"
	Meta   Meta
	Client *txn.Client
	// Waiting counts the notifications of an observer that wait or run, parked ones not
	// among them; nil asks the tablets.
	Waiting func(ctx context.Context, observer string) (uint64, error)

	Page       int           // rows of a page, and notifications that are removed at once
	MaxWaiting int           // a back-fill pauses while so many notifications of its observer wait
	PaceIdle   time.Duration // pause after a turn with nothing to do; Wake ends it
	PaceWait   time.Duration // pause while back-fills wait for their observers
	PaceRetry  time.Duration // pause after a failure
	Timeout    time.Duration // of each step but the reading of a page
	Logger     *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "backfill"
	}
	positive(&c.Page, DefaultPage)
	positive(&c.MaxWaiting, DefaultMaxWaiting)
	positive(&c.PaceIdle, DefaultPaceIdle)
	positive(&c.PaceWait, DefaultPaceWait)
	positive(&c.PaceRetry, DefaultPaceRetry)
	positive(&c.Timeout, DefaultTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Waiting == nil && c.Client != nil {
		client := c.Client
		c.Waiting = func(ctx context.Context, observer string) (uint64, error) {
			all, err := client.PendingObservers(ctx)
			return all[observer].GetNotifications(), err
		}
	}
	return c
}

func positive[N int | time.Duration](v *N, def N) {
	if *v <= 0 {
		*v = def
	}
}

// Job is the running actor. Its methods may be used concurrently. Wake it when there is
// something new to do.
type Job struct{ *actorkit.Turns }

// Spawn starts the actor, which begins at once. Errors: ErrInvalid, or the actor's name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	cfg = cfg.withDefaults()
	if cfg.Meta == nil || cfg.Client == nil {
		return nil, fmt.Errorf("%w: meta and a client are needed", ErrInvalid)
	}
	w := worker{cfg: cfg, synced: map[string]bool{}}
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{Name: cfg.Name, Turn: w.turn})
	if err != nil {
		return nil, fmt.Errorf("backfill: spawn: %w", err)
	}
	return &Job{turns}, nil
}
