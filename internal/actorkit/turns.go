package actorkit

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Turns is an actor that works in turns of one bounded step each. After a turn it pauses
// for the duration that the turn returned, or until it is woken. Turns never overlap. A
// panic ends its turn only: it is logged, and the next turn follows after a pause that
// grows from a second to a minute while turns panic, and that Wake does not shorten. The
// methods of Turns may be called concurrently.
type Turns struct {
	cfg    TurnsConfig
	system *actor.ActorSystem
	pid    *actor.PID
	woken  atomic.Bool // a wake is in the mailbox already
	cancel context.CancelFunc
	done   chan struct{} // closed when the actor has ended
}

// TurnsConfig configures Turns. Name and Turn are required.
type TurnsConfig struct {
	Name  string        // of the actor
	First time.Duration // the pause before the first turn
	Gap   time.Duration // the least pause between two turns, also when woken
	// Turn does one step and returns the pause before the next. Its context ends when
	// the actor is to stop. It runs on the actor's goroutine.
	Turn func(ctx context.Context) (pause time.Duration)
}

// SpawnTurns starts the actor. It fails if the name is taken.
func SpawnTurns(system *actor.ActorSystem, cfg TurnsConfig) (*Turns, error) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Turns{cfg: cfg, system: system, cancel: cancel, done: make(chan struct{})}
	a := &turnActor{ctx: ctx, turns: t}
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return a
	}), cfg.Name)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("actorkit: spawn %s: %w", cfg.Name, err)
	}
	t.pid = pid
	return t, nil
}

// Wake starts the next turn at once, or as soon as Gap or the pause after a panic allows.
// If a turn is running, another follows it. Wake does not wait.
func (t *Turns) Wake() {
	if !t.woken.Swap(true) {
		t.system.Root.Send(t.pid, &wake{})
	}
}

// Stop cancels the running turn and ends the actor. It returns ctx's error if the actor has
// not ended by the end of ctx.
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
	// due is sent by the actor's timer at the end of the nth pause.
	due struct{ n uint64 }
)

// turnActor is the actor. Only its own goroutine uses it.
type turnActor struct {
	ctx    context.Context // of all turns; ends when the actor is to stop
	turns  *Turns
	timer  *time.Timer
	pauses uint64
	next   time.Time // no turn begins before this time
	panics int       // turns in a row that have panicked
}

// Receive does a turn and sets the timer for the next one.
func (t *turnActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		t.pause(c, t.turns.cfg.First)
	case *wake:
		t.turns.woken.Store(false)
		if early := time.Until(t.next); early > 0 {
			t.pause(c, early)
			return
		}
		t.turn(c)
	case *due:
		// If n is older, a wake came first and another pause has begun.
		if m.n == t.pauses {
			t.turn(c)
		}
	case *actor.Stopping:
		t.timer.Stop()
	case *actor.Stopped:
		close(t.turns.done)
	}
}

// turn runs a turn and starts the pause after it.
func (t *turnActor) turn(c actor.Context) {
	if t.ctx.Err() != nil {
		return
	}
	pause, panicked := t.run()
	least := t.turns.cfg.Gap
	if panicked {
		least = min(panicPause<<min(t.panics, 10), maxPanicPause)
		t.panics++
	} else {
		t.panics = 0
	}
	t.next = time.Now().Add(least)
	t.pause(c, max(pause, least))
}

// The first and the longest pause after a panic. The pause doubles while turns panic.
const (
	panicPause    = time.Second
	maxPanicPause = time.Minute
)

// run calls the turn's function. It recovers panics: the cause may be gone by the next turn,
// and no other actor would do this one's job until the node restarts.
func (t *turnActor) run() (pause time.Duration, panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			t.turns.system.Logger().Error("actorkit: a turn panicked; trying again after a pause",
				"actor", t.turns.cfg.Name, "panics", t.panics+1, "panic", p,
				"stack", string(debug.Stack()))
		}
	}()
	return t.turns.cfg.Turn(t.ctx), false
}

// pause starts a pause, which replaces the one that is on.
func (t *turnActor) pause(c actor.Context, pause time.Duration) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.pauses++
	self, root, n := c.Self(), c.ActorSystem().Root, t.pauses
	t.timer = time.AfterFunc(pause, func() { root.Send(self, &due{n}) })
}
