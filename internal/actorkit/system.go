package actorkit

import (
	"context"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
)

// warnings is a handler that lets through what a person should see: the library tells
// every start and dead letter.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// NewSystem returns an actor system whose dead letters answer: a Call that reaches a
// stopped actor ends with ErrStopped instead of leaving its caller to time out.
func NewSystem(logger *slog.Logger) *actor.ActorSystem {
	logger = slog.New(warnings{logger.Handler()})
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return logger
	}))
	system.EventStream.Subscribe(func(event any) {
		letter, ok := event.(*actor.DeadLetterEvent)
		if !ok {
			return
		}
		if c, ok := letter.Message.(Leftover); ok {
			c.Dead()
		}
	})
	return system
}
