package actorkit

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
)

// NewSystem returns an actor system whose dead letters answer: a Call that reaches a stopped actor ends with
// ErrStopped instead of leaving its caller to time out.
func NewSystem(logger *slog.Logger) *actor.ActorSystem {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }))
	system.EventStream.Subscribe(func(event any) {
		letter, ok := event.(*actor.DeadLetterEvent)
		if !ok {
			return
		}
		if c, ok := letter.Message.(deadCall); ok {
			c.dead()
		}
	})
	return system
}
