package placement

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
)

// Placement is the running actor. Its methods may be called concurrently. Call Wake when a
// node has joined or failed or an operator has ordered a move.
type Placement struct {
	*actorkit.Turns
	work *work
}

// Spawn starts the actor. It fails if a field of cfg is missing or out of range, or if the
// actor's name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Placement, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := newWork(cfg)
	turns, err := actorkit.SpawnTurns(system, actorkit.TurnsConfig{
		Name: "placement", First: cfg.Busy, Gap: cfg.Busy,
		Turn: func(ctx context.Context) time.Duration { return w.pause(w.turn(ctx, time.Now())) },
	})
	if err != nil {
		return nil, err
	}
	return &Placement{turns, w}, nil
}

// Status returns the state of placement as of the last turn. The caller owns the message.
func (p *Placement) Status() *pb.PlacementStatus { return p.work.status.snapshot() }
