package placement

import (
	"context"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Placement is the running actor. Its methods may be used concurrently.
type Placement struct {
	system *actor.ActorSystem
	pid    *actor.PID
	cancel context.CancelFunc
	done   chan struct{}
	work   *work
}

// Spawn starts the actor. Errors: a field of cfg is missing or impossible, or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Placement, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Placement{system: system, cancel: cancel, done: make(chan struct{}), work: newWork(cfg)}
	t := &turning{ctx: ctx, work: p.work, done: p.done}
	p.pid, err = system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return t }), cfg.Name)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("placement: spawn: %w", err)
	}
	return p, nil
}

// Stop ends the actor; a request that is under way is cut short. Errors: ctx's, if it has
// not ended by then.
func (p *Placement) Stop(ctx context.Context) error {
	p.cancel()
	p.system.Root.Stop(p.pid)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Status is how things stood at the last turn.
func (p *Placement) Status() *pb.PlacementStatus { return p.work.status.get() }

// Look makes the next turn come at once: a node has come or gone, or there is an order.
// It does not wait for it.
func (p *Placement) Look() { p.system.Root.Send(p.pid, &again{looked: true}) }

// again is the next turn: from the actor's own timer, or because somebody knows of something.
type again struct{ looked bool }

// turning is the actor: it blocks in a turn.
type turning struct {
	ctx   context.Context // ends when placement stops
	work  *work
	timer *time.Timer
	last  time.Time // when the last turn ended
	quiet int       // turns in a row that only waited
	done  chan struct{}
}

// Receive does a turn and sets the timer for the next one. Whatever is asked of it before
// Busy has passed is that one.
func (t *turning) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		t.after(c, t.work.cfg.Busy)
	case *again:
		if t.ctx.Err() != nil {
			return
		}
		if early := t.work.cfg.Busy - time.Since(t.last); m.looked && early > 0 {
			t.after(c, early)
			return
		}
		did, waits := t.work.turn(t.ctx, time.Now())
		t.last = time.Now()
		t.after(c, t.pause(did, waits))
	case *actor.Stopping:
		t.timer.Stop()
	case *actor.Stopped:
		close(t.done)
	}
}

// pause is how long to rest after a turn that has done something, or waits for something:
// the longer that takes, the longer.
func (t *turning) pause(did, waits bool) time.Duration {
	cfg := &t.work.cfg
	if did {
		t.quiet = 0
		return cfg.Busy
	}
	t.quiet++
	if !waits {
		return cfg.Interval
	}
	return min(cfg.Interval, cfg.Busy<<min(t.quiet/4, 10))
}

// after sets the one timer anew.
func (t *turning) after(c actor.Context, pause time.Duration) {
	self, root := c.Self(), c.ActorSystem().Root
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(pause, func() { root.Send(self, &again{}) })
}
