package merger

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
	"github.com/percolator-go/percolator/internal/wire"
)

// The merger's configuration and its actor.

// Meta merges tablets. *meta.Merges implements it.
type Meta interface {
	// Finish completes the interrupted merges in the leaders' statuses.
	Finish(ctx context.Context, leaders ...*pb.StatusResponse) error
	// Mergeable returns a function that reports whether two adjacent tablets may be merged, and
	// whether at once, because they are unused.
	Mergeable(ctx context.Context) (func(left, right *pb.TabletDescriptor) (may, unused bool), error)
	// MergeAt merges the tablets on both sides of the position, and returns the tablet that
	// holds it then. If their replicas are on different nodes it orders a move and fails.
	MergeAt(ctx context.Context, at wire.Position) (*pb.TabletDescriptor, error)
}

// Overview provides recent statuses of tablets.
type Overview interface {
	// Leaders returns the latest known status of each tablet's leader. Tablets that could
	// not be asked are missing. The merger does not modify the messages.
	Leaders(ctx context.Context) ([]*pb.StatusResponse, error)
}

// Defaults of Config.
const (
	DefaultInterval = 10 * time.Second
	DefaultAfter    = 5 * time.Minute
)

const (
	// mergeDivisor bounds the sum of two tablets to 1/mergeDivisor of the split threshold.
	mergeDivisor = 4
	// emptyDivisor bounds a tablet that counts as empty to 1/emptyDivisor of the split
	// threshold, because sizes are estimates.
	emptyDivisor = 64
	// cooldown is the time after a failed merge before the boundary is tried again.
	cooldown = 30 * time.Second
	// turnTime is the time after which a turn begins no more merges, mergeTimeout the limit of one
	// merge.
	turnTime     = 10 * time.Second
	mergeTimeout = 15 * time.Second
)

// Config configures a merger. Meta, Overview, MaxBytes and MaxLoad are required; other zero
// fields take their defaults.
type Config struct {
	Meta     Meta
	Overview Overview

	// FinishOnly means that half-done merges are finished, but no merge is begun.
	FinishOnly bool
	MaxBytes   uint64        // size at which a tablet is split
	MaxLoad    uint64        // operations per second at which a tablet is split
	Interval   time.Duration // pause between turns; a quarter of it while a merge is half done
	After      time.Duration // how long two tablets in use must have been small together
	Logger     *slog.Logger
}

var errConfig = errors.New("merger: Meta, Overview, MaxBytes and MaxLoad are required")

func (c Config) withDefaults() (Config, error) {
	if c.Meta == nil || c.Overview == nil || c.MaxBytes == 0 || c.MaxLoad == 0 {
		return c, errConfig
	}
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.After = cmp.Or(c.After, DefaultAfter)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}

// Merger is the running actor. Its methods may be called concurrently.
type Merger struct {
	*actorkit.Turns
	work *work
}

// Spawn starts the actor. It fails if a required field is missing or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Merger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := newWork(cfg)
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: "merger", First: cfg.Interval / 4, Turn: func(ctx context.Context) time.Duration {
			return w.turn(ctx, time.Now())
		},
	})
	if err != nil {
		return nil, err
	}
	return &Merger{turns, w}, nil
}

// Merged returns the number of merges that this Merger has begun and completed.
func (m *Merger) Merged() uint64 { return m.work.merged.Load() }

// work is the actor's state. Only the actor's goroutine uses it, except merged.
type work struct {
	cfg      Config
	small    map[wire.Position]time.Time // by boundary: since when both sides have been small together
	failed   map[wire.Position]time.Time // by boundary: when its cooldown ends
	halfDone map[uint64]uint64           // by tablet whose merge was half done last turn: its epoch
	merged   atomic.Uint64
}

func newWork(cfg Config) *work {
	return &work{
		cfg: cfg, small: map[wire.Position]time.Time{}, failed: map[wire.Position]time.Time{},
		halfDone: map[uint64]uint64{},
	}
}
