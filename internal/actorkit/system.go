package actorkit

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// warnings is a handler that passes warnings and errors only: protoactor also logs every start and
// dead letter.
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

// restarting restarts an actor after every panic, without the message: no other actor would do
// its job until the node restarts. The library's default stops it after ten panics within 10 s and
// does not log them. The pause before a restart grows while the actor panics.
type restarting struct {
	actor.SupervisorStrategy
	logger *slog.Logger
}

// The pause before a restart grows by restartPause with each panic. After calmAfter
// without one it is short again.
const (
	restartPause = 10 * time.Millisecond
	calmAfter    = 10 * time.Second
)

// HandleFailure implements actor.SupervisorStrategy. It runs on the panicking goroutine, so
// that the stack shows the panic's origin.
func (r *restarting) HandleFailure(system *actor.ActorSystem, guardian actor.Supervisor,
	failed *actor.PID, stats *actor.RestartStatistics, panicked, message any) {
	r.logger.Error("actorkit: an actor panicked; it continues after a pause",
		"actor", failed.GetId(),
		"panic", panicked, "stack", string(debug.Stack()))
	r.SupervisorStrategy.HandleFailure(system, guardian, failed, stats, panicked, message)
}

// NewSystem returns an actor system whose actors outlive their panics, each of which is
// logged, and whose dead letters answer: a Call that reaches a stopped actor ends with
// ErrStopped instead of leaving its caller to time out.
func NewSystem(logger *slog.Logger) *actor.ActorSystem {
	logger = slog.New(warnings{logger.Handler()})
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return logger
	}))
	system.Root.WithGuardian(&restarting{
		actor.NewExponentialBackoffStrategy(calmAfter, restartPause), logger,
	})
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
