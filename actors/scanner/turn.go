package scanner

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// worker does one turn of work at a time and says how long to pause before the next.
type worker interface {
	turn(ctx context.Context) (pause time.Duration)
}

// again is the next turn, from the actor's own timer.
type again struct{}

// wakeUp has the next turn begin now.
type wakeUp struct{}

// turning is the actor around a worker: it blocks in a turn, and nothing is sent to it
// but its own next one.
type turning struct {
	ctx    context.Context // ends when the scanners stop
	worker worker
	timer  *time.Timer
	end    *ending
}

func newTurning(ctx context.Context, w worker, end *ending) *turning {
	return &turning{ctx: ctx, worker: w, end: end}
}

// Receive does a turn and sets the timer for the next one.
func (t *turning) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *actor.Started:
		t.after(c, 0)
	case *again:
		if t.ctx.Err() == nil {
			t.after(c, t.worker.turn(t.ctx))
		}
	case *wakeUp:
		if t.ctx.Err() == nil && t.timer.Stop() { // else the turn's message is on its way
			t.after(c, t.worker.turn(t.ctx))
		}
	case *actor.Stopping:
		t.timer.Stop()
	case *actor.Stopped:
		t.end.one()
	}
}

func (t *turning) after(c actor.Context, pause time.Duration) {
	self, root := c.Self(), c.ActorSystem().Root
	t.timer = time.AfterFunc(pause, func() { root.Send(self, &again{}) })
}
