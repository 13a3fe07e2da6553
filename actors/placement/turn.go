package placement

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file runs one turn: gather the state, make a plan, record what is finished, send
// the steps. It runs on the actor's goroutine; only the steps of one turn run side by
// side, each for a different tablet, and the turn waits for all of them. So between turns
// nothing is in flight but operations whose outcome was unknown when their timeout ended,
// and the epoch that they carry makes those harmless: only one change per epoch takes effect.

// work is the actor's state. Only the actor's goroutine uses it, except status.
type work struct {
	cfg      Config
	cooldown *moveCooldown
	status   statusBoard
	// firstTurn is the time of this actor's first turn; zero before it.
	firstTurn time.Time
	// idleTurns is the number of consecutive turns that changed nothing.
	idleTurns int
}

func newWork(cfg Config) *work { return &work{cfg: cfg, cooldown: newMoveCooldown(cfg.Rest)} }

// turn examines the whole cluster once and performs one step for each tablet that needs one. It
// reports whether anything was changed, and whether a change is still incomplete. An error is
// logged and counted; the next turn starts again from the recorded state.
func (w *work) turn(ctx context.Context, now time.Time) (did, waits bool) {
	s, err := w.gather(ctx, now)
	if err == nil {
		plan := Make(s)
		w.status.recordPlan(plan, len(s.Orders))
		err = errors.Join(w.recordOutcomes(ctx, plan), w.execute(ctx, now, plan.Steps),
			w.forget(ctx, now, s))
		did = len(plan.Ended)+len(plan.Drained)+len(plan.Gone) > 0 || err == nil &&
			len(plan.Steps) > 0
		waits = plan.Changing > 0 || len(plan.Steps) > 0
	}
	if err != nil && ctx.Err() == nil {
		w.status.recordFailure()
		w.cfg.Logger.Warn("placement: a turn failed and is repeated", "error", err)
	}
	return did, waits
}

// pause returns the time to wait before the next turn. While a change is incomplete the pause
// doubles with every fourth turn that does nothing, from Busy up to Interval.
func (w *work) pause(did, waits bool) time.Duration {
	if did {
		w.idleTurns = 0
		return w.cfg.Busy
	}
	w.idleTurns++
	if !waits {
		return w.cfg.Interval
	}
	return min(w.cfg.Interval, w.cfg.Busy<<min(w.idleTurns/4, 10))
}

// recordOutcomes records in meta which orders have ended and which nodes hold nothing any
// more. It attempts every record and returns the errors joined.
func (w *work) recordOutcomes(ctx context.Context, plan *Plan) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var errs []error
	for _, o := range plan.Ended {
		errs = append(errs, w.cfg.Meta.EndMove(ctx, o))
	}
	for _, id := range plan.Drained {
		_, err := w.cfg.Meta.SetNodeState(ctx, id, pb.NodeState_NODE_STATE_DRAINED,
			pb.NodeState_NODE_STATE_DRAINING)
		errs = append(errs, err)
	}
	for _, id := range plan.Gone {
		_, err := w.cfg.Meta.SetNodeState(ctx, id, pb.NodeState_NODE_STATE_GONE,
			pb.NodeState_NODE_STATE_ACTIVE)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// execute performs the steps, each for a different tablet, at most stepsAtOnce concurrently, without
// those of tablets that wait after a failed step (moveCooldown.due). A failed step is not repeated
// here: a later turn plans from the state at that time.
func (w *work) execute(ctx context.Context, now time.Time, steps []Step) error {
	var mu sync.Mutex
	var errs []error
	g := errgroup.Group{}
	g.SetLimit(stepsAtOnce)
	for _, st := range steps {
		if !w.cooldown.due(now, st.Tablet) {
			continue
		}
		g.Go(func() error {
			err := w.sendStep(ctx, st)
			mu.Lock()
			defer mu.Unlock()
			w.cooldown.done(now, st, err)
			errs = append(errs, err)
			return nil
		})
	}
	return errors.Join(g.Wait(), errors.Join(errs...))
}

// sendStep sends one step to the tablet's leader, with the epoch that it was planned from. It
// returns an error if the step failed or its outcome is unknown.
func (w *work) sendStep(ctx context.Context, st Step) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	req := &pb.TabletRequest{TabletId: st.Tablet, Epoch: st.Epoch}
	if st.Leader != 0 {
		req.Op = &pb.TabletRequest_TransferLeader{
			TransferLeader: &pb.TransferLeaderRequest{NodeId: st.Leader},
		}
	} else {
		req.Op = &pb.TabletRequest_ChangeReplicas{
			ChangeReplicas: &pb.ChangeReplicasRequest{Changes: st.Changes},
		}
	}
	if _, err := w.cfg.Cluster.Send(ctx, st.Tablet, req); err != nil {
		return fmt.Errorf("placement: %s: %w", st.text(), err)
	}
	w.status.recordStep(st)
	w.cfg.Logger.Info("placement: "+st.text(), "why", st.Why)
	return nil
}
