package placement

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
)

// work is what the actor does; its own, except status.
type work struct {
	cfg    Config
	memory *memory
	status board
	began  time.Time // the first turn
	quiet  int       // turns in a row that only waited
}

func newWork(cfg Config) *work { return &work{cfg: cfg, memory: newMemory(cfg.Rest)} }

// turn looks at everything once and does one step for each tablet that needs one. waits:
// something is half done.
func (w *work) turn(ctx context.Context, now time.Time) (did, waits bool) {
	s, err := w.gather(ctx, now)
	if err == nil {
		plan := Make(s)
		w.status.plan(plan, len(s.Orders))
		err = errors.Join(w.settle(ctx, plan), w.execute(ctx, now, plan.Steps), w.forget(ctx, now, s))
		did = len(plan.Ended)+len(plan.Drained)+len(plan.Gone) > 0 || err == nil && len(plan.Steps) > 0
		waits = plan.Changing > 0 || len(plan.Steps) > 0
	}
	if err != nil && ctx.Err() == nil {
		w.status.failed()
		w.cfg.Logger.Warn("placement: a turn failed and is repeated", "error", err)
	}
	return did, waits
}

// pause is how long to rest after a turn that has done something, or waits for something:
// the longer that takes, the longer.
func (w *work) pause(did, waits bool) time.Duration {
	if did {
		w.quiet = 0
		return w.cfg.Busy
	}
	w.quiet++
	if !waits {
		return w.cfg.Interval
	}
	return min(w.cfg.Interval, w.cfg.Busy<<min(w.quiet/4, 10))
}

// settle records in meta what is done.
func (w *work) settle(ctx context.Context, plan *Plan) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	var errs []error
	for _, o := range plan.Ended {
		errs = append(errs, w.cfg.Meta.EndMove(ctx, o))
	}
	for _, id := range plan.Drained {
		_, err := w.cfg.Meta.SetNodeState(ctx, id, pb.NodeState_NODE_STATE_DRAINED, pb.NodeState_NODE_STATE_DRAINING)
		errs = append(errs, err)
	}
	for _, id := range plan.Gone {
		_, err := w.cfg.Meta.SetNodeState(ctx, id, pb.NodeState_NODE_STATE_GONE, pb.NodeState_NODE_STATE_ACTIVE)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// execute does the steps, each for a tablet of its own, a few at a time. A step that
// fails is thought of anew later.
func (w *work) execute(ctx context.Context, now time.Time, steps []Step) error {
	var mu sync.Mutex
	var errs []error
	g := errgroup.Group{}
	g.SetLimit(w.cfg.MaxChanging)
	for _, st := range steps {
		if !w.memory.due(now, st.Tablet) {
			continue
		}
		g.Go(func() error {
			err := w.do(ctx, st)
			mu.Lock()
			defer mu.Unlock()
			w.memory.done(now, st, err)
			errs = append(errs, err)
			return nil
		})
	}
	return errors.Join(g.Wait(), errors.Join(errs...))
}

// epochNow is the tablet's epoch, whatever has become of it: for the broken build.
func (w *work) epochNow(ctx context.Context, tablet uint64) uint64 {
	req := &pb.TabletRequest{TabletId: tablet, Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}
	r, err := w.cfg.Cluster.Send(ctx, tablet, req)
	if err != nil {
		return 0
	}
	return r.GetStatus().GetTablet().GetEpoch()
}

// do sends one step to the tablet's leader, under the epoch that it was planned from (invariant 1).
func (w *work) do(ctx context.Context, st Step) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	req := &pb.TabletRequest{TabletId: st.Tablet, Epoch: st.Epoch}
	if broken.MoveUnfenced {
		req.Epoch = w.epochNow(ctx, st.Tablet)
	}
	if st.Leader != 0 {
		req.Op = &pb.TabletRequest_TransferLeader{TransferLeader: &pb.TransferLeaderRequest{NodeId: st.Leader}}
	} else {
		req.Op = &pb.TabletRequest_ChangeReplicas{ChangeReplicas: &pb.ChangeReplicasRequest{Changes: st.Changes}}
	}
	if _, err := w.cfg.Cluster.Send(ctx, st.Tablet, req); err != nil {
		return &StepError{Step: st, Err: err}
	}
	w.status.did(st)
	w.cfg.Logger.Info("placement: "+st.text(), "why", st.Why)
	return nil
}
