package timers

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
	"github.com/percolator-go/percolator/internal/txn"
)

// The actor, its configuration and its statistics. Its turns never overlap, and it receives no
// message other than its next turn.

// DefaultPause is the default of Config.Pause.
const DefaultPause = 200 * time.Millisecond

// Meta reads the observers and creates tablets. *meta.Observers and *meta.Schema together
// implement it.
type Meta interface {
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
	SplitAt(ctx context.Context, table mvcc.TableID, row string) error
}

// Config configures a Job. Meta and Client are required; other zero fields take their defaults.
type Config struct {
	Meta   Meta
	Client *txn.Client
	// Tablets returns the tablets that hold timers. If it is nil, their leaders are asked.
	Tablets func(ctx context.Context) ([]Tablet, error)
	// Ready reports whether the cluster's version includes timers. Nil means that it does.
	Ready func() bool
	// Pause is the time between two checks for due timers, and thus usually their maximum delay. It
	// is multiplied by idlePauses while there are no timers.
	Pause  time.Duration
	Stats  *Stats // counters to update; may be nil
	Logger *slog.Logger
}

// Tablet is a tablet that holds timers.
type Tablet struct {
	ID      uint64
	Applied uint64 // number of changes applied by its leader
	Shared  bool   // the tablet also holds rows of other tables
}

// Stats are the counters of this process's jobs.
type Stats struct {
	Fired   atomic.Uint64 // timers that have notified
	Moved   atomic.Uint64 // timers set again: found before their time, or of an unavailable tablet
	Dropped atomic.Uint64 // timers dropped: malformed, of a cell over this node's limits, or of a column without a weak observer
	Lag     atomic.Int64  // delay of the last fired timer in milliseconds
	Reads   atomic.Uint64 // reads of the table, each of at most 1,250 timers
	Pending atomic.Int64  // pending timers at the last full read; at most 10,000
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
	c.Pause = actorkit.Positive(c.Pause, DefaultPause)
	c.Stats = cmp.Or(c.Stats, new(Stats))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}

// Job is the running actor.
type Job = actorkit.Turns

// Spawn starts the actor. It fails with ErrInvalid, or if its name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return actorkit.SpawnTurns(system, actorkit.TurnsConfig{Name: "timers", Turn: newWork(cfg).turn})
}
