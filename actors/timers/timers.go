package timers

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file has the actor, its configuration and its figures. Its turns never overlap, and
// nothing is sent to it but its own next turn.

// DefaultPause is the default of Config.Pause.
const DefaultPause = 200 * time.Millisecond

// Meta knows the observers and makes tablets. *meta.Observers and *meta.Schema together
// implement it.
type Meta interface {
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
	SplitAt(ctx context.Context, table mvcc.TableID, row string) error
}

// Config configures a Job. Meta and Client are required; other zero fields take their defaults.
type Config struct {
	Meta   Meta
	Client *txn.Client
	// Tablets returns the tablets that hold timers. If it is nil their leaders are asked.
	Tablets func(ctx context.Context) ([]Tablet, error)
	// Ready reports whether the cluster has agreed on timers; if it is nil it has.
	Ready func() bool
	// Pause is the time between two looks at what is due: how late timers fire. Where there are
	// none it is five times as long.
	Pause  time.Duration
	Stats  *Stats // to count in; may be nil
	Logger *slog.Logger
}

// Tablet is a tablet that holds timers.
type Tablet struct {
	ID      uint64
	Applied uint64 // how many changes its leader has applied
	Shared  bool   // it holds rows of other tables, too
}

// Stats count what jobs of this process have done.
type Stats struct {
	Fired   atomic.Uint64 // timers that have notified
	Moved   atomic.Uint64 // those that were found too early and set anew
	Dropped atomic.Uint64 // those that nothing observes any more
	Lag     atomic.Int64  // how late the last one fired, in milliseconds
	Reads   atomic.Uint64 // of the table, a page or less each
	Pending atomic.Int64  // how many were waiting when it last read all; at most 10,000
}

// ErrInvalid reports a configuration that lacks a required field.
var ErrInvalid = errors.New("timers: Meta and Client are required")

func (c Config) withDefaults() (Config, error) {
	if c.Meta == nil || c.Client == nil {
		return c, ErrInvalid
	}
	if c.Tablets == nil {
		c.Tablets = func(ctx context.Context) ([]Tablet, error) { return tablets(ctx, c.Client) }
	}
	if c.Ready == nil {
		c.Ready = func() bool { return true }
	}
	if c.Pause <= 0 {
		c.Pause = DefaultPause
	}
	if c.Stats == nil {
		c.Stats = new(Stats)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Job is the running actor. Its methods may be called concurrently.
type Job struct{ *actorkit.Turns }

// Spawn starts the actor. It fails with ErrInvalid, or if its name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: "timers", Turn: newWork(cfg).turn,
	})
	if err != nil {
		return nil, err
	}
	return &Job{turns}, nil
}
