package collector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Collector is the running actor. Its methods may be used concurrently.
type Collector struct {
	system *actor.ActorSystem
	pid    *actor.PID
	cancel context.CancelFunc
	done   chan struct{}
	cycle  *cycle
}

// Spawn starts the actor; it goes on where the record says. Errors: a required field is
// missing, or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Collector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Collector{system: system, cancel: cancel, done: make(chan struct{}), cycle: &cycle{cfg: cfg}}
	t := &turning{ctx: ctx, cycle: c.cycle, done: c.done}
	props := actor.PropsFromProducer(func() actor.Actor { return t })
	c.pid, err = system.Root.SpawnNamed(props, cfg.Name)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("collector: spawn: %w", err)
	}
	return c, nil
}

// Stop ends the actor; a request that is under way is cut short. Errors: ctx's, if it has
// not ended by then.
func (c *Collector) Stop(ctx context.Context) error {
	c.cancel()
	c.system.Root.Stop(c.pid)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Status is how the collector stands: target, what blocks it, leases. The tablets' own
// figures are not in it.
func (c *Collector) Status() *pb.HistoryStatus { return c.cycle.status.get() }

// board is the collector's status, for other goroutines.
type board struct {
	mu     sync.Mutex
	status pb.HistoryStatus
}

func (b *board) get() *pb.HistoryStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &pb.HistoryStatus{
		Target: b.status.Target, BlockedBy: b.status.BlockedBy, Holds: b.status.Holds, OldestHold: b.status.OldestHold,
	}
}

func (b *board) set(change func(*pb.HistoryStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

// again is the next turn, from the actor's own timer.
type again struct{}

// turning is the actor: it blocks in a turn, and nothing is sent to it but its own next one.
type turning struct {
	ctx   context.Context // ends when the collector stops
	cycle *cycle
	timer *time.Timer
	done  chan struct{}
}

// Receive does a turn and sets the timer for the next one.
func (t *turning) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *actor.Started:
		t.after(c, t.cycle.cfg.Interval)
	case *again:
		if t.ctx.Err() == nil {
			t.cycle.turn(t.ctx)
			t.after(c, t.cycle.cfg.Interval)
		}
	case *actor.Stopping:
		t.timer.Stop()
	case *actor.Stopped:
		close(t.done)
	}
}

func (t *turning) after(c actor.Context, pause time.Duration) {
	self, root := c.Self(), c.ActorSystem().Root
	t.timer = time.AfterFunc(pause, func() { root.Send(self, &again{}) })
}
