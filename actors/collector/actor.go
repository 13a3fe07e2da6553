package collector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
)

// Collector is the running actor. Its methods may be used concurrently.
type Collector struct {
	*actorkit.Turns
	cycle *cycle
}

// Spawn starts the actor; it goes on where the record says. Errors: a required field is
// missing, or the name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Collector, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &cycle{cfg: cfg}
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: cfg.Name, First: cfg.Interval, Turn: func(ctx context.Context) time.Duration {
			c.turn(ctx)
			return cfg.Interval
		},
	})
	if err != nil {
		return nil, fmt.Errorf("collector: spawn: %w", err)
	}
	return &Collector{turns, c}, nil
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
