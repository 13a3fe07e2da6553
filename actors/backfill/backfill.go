package backfill

import (
	"cmp"
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
	DefaultPage      = 512
	DefaultPaceIdle  = 5 * time.Second
	DefaultPaceRetry = time.Second
)

const (
	// maxWaiting is the number of pending notifications of its observer at which a back-fill
	// pauses.
	maxWaiting  = 2048
	paceWait    = 50 * time.Millisecond // pause while back-fills wait for their observers
	stepTimeout = 30 * time.Second      // limit of each step, except the reading of a page
)

// ErrInvalid reports a configuration that lacks a required field.
var ErrInvalid = errors.New("backfill: invalid configuration")

// Meta stores the catalogue and the records of back-fills. *meta.Observers and
// *meta.BackfillRecords together implement it.
type Meta interface {
	// Sync sends every tablet the newest catalogue and returns when all have applied it.
	Sync(ctx context.Context) error
	// Catalogue returns the observers, retired ones included.
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
	// Backfills returns the record of each observer's last back-fill by the observer's
	// name. Observers without a back-fill are missing.
	Backfills(ctx context.Context, observers []*pb.ObserverInfo) (map[string]*pb.Backfill, error)
	// SaveBackfill stores the record, unless the back-fill was canceled or replaced or its observer
	// retired, and reports whether the back-fill continues. An error of the server means that the
	// observer is gone.
	SaveBackfill(ctx context.Context, b *pb.Backfill) (continues bool, err error)
	// ForgetObserver removes a retired observer's entry from the catalogue, and the record of its
	// back-fill.
	ForgetObserver(ctx context.Context, name string) error
}

// Config configures a Job. Meta and Client are required; other zero fields take their
// defaults.
type Config struct {
	Meta   Meta
	Client *txn.Client
	// Waiting returns the number of the observer's pending or running notifications, excluding
	// parked ones. If it is nil, the tablets are asked.
	Waiting func(ctx context.Context, observer string) (uint64, error)

	Page      int           // most rows in a page
	PaceIdle  time.Duration // pause after a turn with nothing to do; Wake ends it
	PaceRetry time.Duration // pause after a failure
	Logger    *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Page = actorkit.Positive(c.Page, DefaultPage)
	c.PaceIdle = actorkit.Positive(c.PaceIdle, DefaultPaceIdle)
	c.PaceRetry = actorkit.Positive(c.PaceRetry, DefaultPaceRetry)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Waiting == nil && c.Client != nil {
		client := c.Client
		c.Waiting = func(ctx context.Context, observer string) (uint64, error) {
			all, err := client.PendingObservers(ctx)
			return all[observer].GetNotifications(), err
		}
	}
	return c
}

// Job is the running actor. Call Wake when there is something new to do.
type Job = actorkit.Turns

// Spawn starts the actor, which begins its first turn at once. It fails with ErrInvalid, or
// if the actor's name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	cfg = cfg.withDefaults()
	if cfg.Meta == nil || cfg.Client == nil {
		return nil, fmt.Errorf("%w: Meta and Client are required", ErrInvalid)
	}
	w := worker{cfg: cfg, synced: map[string]bool{}}
	return actorkit.SpawnTurns(system, actorkit.TurnsConfig{Name: "backfill", Turn: w.turn})
}
