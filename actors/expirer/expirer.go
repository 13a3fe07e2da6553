package expirer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
)

// The actor, its configuration and its statistics. Its turns never overlap.

// DefaultPause is the default of Config.Pause.
const DefaultPause = 10 * time.Second

// Tables reads the tables' records. *meta.Schema implements it.
type Tables interface {
	Tables(ctx context.Context) ([]*pb.Table, error)
}

// Config configures a Job. Tables and Client are required; other zero fields take their defaults.
type Config struct {
	Tables Tables
	Client *txn.Client
	// Pause is the time between two turns; each reads the list of tables. It is less if cells are due
	// sooner, and more after a longer turn. Defaults to DefaultPause.
	Pause  time.Duration
	Now    func() time.Time // the clock of this node; defaults to time.Now
	Stats  *Stats           // counters to update; may be nil
	Logger *slog.Logger
}

// Stats are the counters of this process's jobs.
type Stats struct {
	Deleted atomic.Uint64 // cells
	Passes  atomic.Uint64 // complete searches of a table for expired cells of one rule
}

// ErrInvalid reports a configuration that lacks a required field.
var ErrInvalid = errors.New("expirer: Tables and Client are required")

func (c Config) withDefaults() (Config, error) {
	if c.Tables == nil || c.Client == nil {
		return c, ErrInvalid
	}
	c.Pause = actorkit.Positive(c.Pause, DefaultPause)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Stats = cmp.Or(c.Stats, new(Stats))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}

// Job is the running actor. Its methods are safe for concurrent use.
type Job struct {
	*actorkit.Turns
	work *work
}

// Spawn starts the actor. It fails with ErrInvalid, or if its name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := newWork(cfg)
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{Name: "expirer", Turn: w.turn})
	if err != nil {
		return nil, err
	}
	return &Job{turns, w}, nil
}

// Status returns the rules and their lags, as of the last turn.
func (j *Job) Status() *pb.ExpiryStatus { return j.work.status.get(j.work.cfg.Now()) }

// board holds the rules for readers on other goroutines.
type board struct {
	mu    sync.Mutex
	rules []shownRule
}

// shownRule is a rule and the time from which its oldest known cell is due, often in the future.
type shownRule struct {
	rule *pb.ExpiryRule
	due  time.Time
}

func (b *board) set(rules []shownRule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = rules
}

// get returns copies of the rules' figures with the lags as of now, which grow also while a turn waits.
func (b *board) get(now time.Time) *pb.ExpiryStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &pb.ExpiryStatus{}
	for _, s := range b.rules {
		lag := uint64(0)
		if !s.due.IsZero() {
			lag = uint64(max(now.Sub(s.due).Milliseconds(), 0))
		}
		out.Rules = append(out.Rules, &pb.ExpiryRule{
			Table: s.rule.Table, TableName: s.rule.TableName, Column: s.rule.Column,
			Others: s.rule.Others, AfterMs: s.rule.AfterMs, LagMs: lag,
			ToleratedMs: s.rule.ToleratedMs, Error: s.rule.Error,
		})
	}
	return out
}
