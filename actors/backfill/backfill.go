package backfill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
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

// Job is the running actor. Its methods may be used concurrently.
type Job struct {
	system  *actor.ActorSystem
	pid     *actor.PID
	cancel  context.CancelFunc
	stopped chan struct{}
}

// Spawn starts the actor, which begins at once. Errors: ErrInvalid, or the actor's name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Job, error) {
	cfg = cfg.withDefaults()
	if cfg.Meta == nil || cfg.Client == nil {
		return nil, fmt.Errorf("%w: meta and a client are needed", ErrInvalid)
	}
	// The context of all turns lives as long as the actor.
	ctx, cancel := context.WithCancel(context.Background())
	j := &Job{system: system, cancel: cancel, stopped: make(chan struct{})}
	a := &turning{ctx: ctx, worker: worker{cfg: cfg, synced: map[string]bool{}}, stopped: j.stopped}
	// One instance for good: a restart after a panic goes on with what it knows.
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return a }), cfg.Name)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("backfill: spawn: %w", err)
	}
	j.pid = pid
	return j, nil
}

// Wake makes the job look at once for something to do.
func (j *Job) Wake() { j.system.Root.Send(j.pid, &wake{}) }

// Stop ends the job; a step that goes on is cut short. Errors: ctx's, when it has not
// ended by then.
func (j *Job) Stop(ctx context.Context) error {
	j.cancel()
	j.system.Root.Stop(j.pid)
	select {
	case <-j.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Messages of the actor.
type (
	// wake: there is something new to do. From Wake.
	wake struct{}
	// again: the pause after turn has ended. From the actor's own timer.
	again struct{ turn uint64 }
)

// turning is the actor around the worker.
type turning struct {
	ctx     context.Context // ends when the job stops
	worker  worker
	turns   uint64
	timer   *time.Timer
	stopped chan struct{}
}

// Receive does a turn and sets the timer for the next one.
func (t *turning) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		t.turn(c)
	case *wake:
		t.turn(c)
	case *again:
		if m.turn == t.turns { // else a wake was faster, and another timer is set
			t.turn(c)
		}
	case *actor.Stopping:
		if t.timer != nil {
			t.timer.Stop()
		}
	case *actor.Stopped:
		close(t.stopped)
	}
}

func (t *turning) turn(c actor.Context) {
	if t.ctx.Err() != nil {
		return
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	pause := t.worker.turn(t.ctx)
	t.turns++
	self, root, turn := c.Self(), c.ActorSystem().Root, t.turns
	t.timer = time.AfterFunc(pause, func() { root.Send(self, &again{turn}) })
}
