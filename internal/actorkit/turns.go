package actorkit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Turns is an actor that works in turns, one bounded step each: after a turn it pauses for
// as long as the turn has said, or until it is woken. It blocks in a turn, so turns never
// overlap, and nothing is sent to it but its own next one. A turn that panics is logged by
// the library; the next one comes after the first pause. Methods may be used concurrently.
type Turns struct {
	cfg    TurnsConfig
	system *actor.ActorSystem
	pid    *actor.PID
	woken  atomic.Bool // a wake is on its way: one is enough
	cancel context.CancelFunc
	done   chan struct{} // closed when the actor has ended
}

// TurnsConfig is what Turns are started with. Name and Turn are required.
type TurnsConfig struct {
	Name  string        // of the actor
	First time.Duration // the pause before the first turn
	Gap   time.Duration // the least pause between two turns, also when woken
	// Turn does one step and returns the pause before the next. Its context ends when
	// the actor is to stop. It runs on the actor's goroutine.
	Turn func(ctx context.Context) (pause time.Duration)
}

// SpawnTurns starts the actor. Errors: the name is taken.
func SpawnTurns(system *actor.ActorSystem, cfg TurnsConfig) (*Turns, error) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Turns{cfg: cfg, system: system, cancel: cancel, done: make(chan struct{})}
	a := &turning{ctx: ctx, turns: t}
	// One instance for good: a restart after a panic goes on with what it knows.
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return a }), cfg.Name)
	if err != nil {
		cancel()
		return nil, err
	}
	t.pid = pid
	return t, nil
}

// Wake makes the next turn come at once, or Gap after the last; if one is under way,
// another follows it. It does not wait for it.
func (t *Turns) Wake() {
	if !t.woken.Swap(true) {
		t.system.Root.Send(t.pid, &wake{})
	}
}

// Stop ends the actor; a turn that is under way is cut short. Errors: ctx's, if the actor
// has not ended by then.
func (t *Turns) Stop(ctx context.Context) error {
	t.cancel()
	t.system.Root.Stop(t.pid)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Messages of the actor.
type (
	wake struct{}
	// due: the pause that was the nth has ended. From the actor's own timer.
	due struct{ n uint64 }
)

// turning is the actor.
type turning struct {
	ctx    context.Context // of all turns; ends when the actor is to stop
	turns  *Turns
	timer  *time.Timer
	pauses uint64
	last   time.Time // when the last turn ended
}

// Receive does a turn and sets the timer for the next one.
func (t *turning) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started: // also after a panic
		t.pause(c, t.turns.cfg.First)
	case *wake:
		t.turns.woken.Store(false)
		if early := t.turns.cfg.Gap - time.Since(t.last); early > 0 {
			t.pause(c, early)
			return
		}
		t.turn(c)
	case *due:
		if m.n == t.pauses { // else a wake was faster, and another pause is on
			t.turn(c)
		}
	case *actor.Stopping:
		t.timer.Stop()
	case *actor.Stopped:
		close(t.turns.done)
	}
}

func (t *turning) turn(c actor.Context) {
	if t.ctx.Err() != nil {
		return
	}
	pause := max(t.turns.cfg.Turn(t.ctx), t.turns.cfg.Gap)
	t.last = time.Now()
	t.pause(c, pause)
}

// pause sets the one timer anew.
func (t *turning) pause(c actor.Context, pause time.Duration) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.pauses++
	self, root, n := c.Self(), c.ActorSystem().Root, t.pauses
	t.timer = time.AfterFunc(pause, func() { root.Send(self, &due{n}) })
}
