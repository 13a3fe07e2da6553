package collector

import (
	"context"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
)

// The actor and its published status. Package node starts it on the node that leads meta. Its
// turns never overlap, and it receives no message other than its next turn.

// Collector is the running actor. Its methods may be called concurrently.
type Collector struct {
	*actorkit.Turns
	cycle *cycle
}

// Spawn starts the actor, which resumes the cycle that the record describes. It fails if a
// required field is missing or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Collector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &cycle{cfg: cfg}
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: "collector", First: cfg.Interval, Turn: func(ctx context.Context) time.Duration {
			c.turn(ctx)
			return cfg.Interval
		},
	})
	if err != nil {
		return nil, err
	}
	return &Collector{turns, c}, nil
}

// Status returns the collector's target, what blocks it, and a summary of the leases. It
// does not include the figures of tablets. The caller owns the message.
func (c *Collector) Status() *pb.HistoryStatus { return c.cycle.status.snapshot() }

// statusBoard holds the latest status. The actor writes it; any goroutine may read it.
type statusBoard struct {
	mu     sync.Mutex
	status pb.HistoryStatus
}

func (b *statusBoard) snapshot() *pb.HistoryStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return proto.CloneOf(&b.status)
}

func (b *statusBoard) update(change func(*pb.HistoryStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}
