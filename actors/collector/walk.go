package collector

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Walks over the key range of user tables, one tablet at a time, for the steps of a cycle. They
// run on the actor's goroutine with one request in flight. The record may lag behind a walk by up
// to saveEvery tablets; these are visited again after a crash, which is harmless because every
// visit is idempotent.

// saveEvery is the number of tablets after which a walk's progress is made durable.
const saveEvery = 32

// visit does a step at the tablet that holds a position. It returns the descriptor under
// which the step was done.
type visit func(ctx context.Context, rec *wire.Collection, at wire.Position) (*pb.TabletDescriptor,
	error)

// walk does the record's step at every tablet from the record's position to the end of the
// key range, and then enters the next step. It returns the record as last stored.
func (c *cycle) walk(ctx context.Context, rec *wire.Collection,
	do visit) (*wire.Collection, error) {
	at := wire.Position{Table: mvcc.TableID(rec.NextTable), Row: wire.String(rec.NextRow)}
	for done := 1; ; done++ {
		d, err := do(ctx, rec, at)
		if err != nil {
			return rec, err
		}
		end, bounded := wire.EndOf(d)
		if !bounded {
			break
		}
		at = end
		if done%saveEvery != 0 {
			continue
		}
		to := &wire.Collection{
			Step: rec.Step, Target: rec.Target, StepTs: rec.StepTs, Safepoint: rec.Safepoint,
			NextTable: uint32(at.Table), NextRow: wire.Bytes(at.Row),
		}
		if err := c.save(ctx, rec, to, nil); err != nil {
			return rec, err
		}
		rec = to
	}
	next := wire.Collection_STEP_RAISE
	switch {
	case rec.Step == wire.Collection_STEP_BIND:
		next = wire.Collection_STEP_CONFIRM
	case rec.Step == wire.Collection_STEP_RAISE:
		next = wire.Collection_STEP_IDLE
	}
	return c.enterStep(ctx, rec, next)
}

// publishTarget makes the target the tablet's bound in the first step, and its safepoint in the last.
func (c *cycle) publishTarget(ctx context.Context, rec *wire.Collection,
	at wire.Position) (*pb.TabletDescriptor, error) {
	op := &pb.CollectRequest{Bound: rec.Target}
	if rec.Step == wire.Collection_STEP_RAISE {
		op = &pb.CollectRequest{Safepoint: rec.Target}
	}
	_, d, err := c.collect(ctx, at, op)
	return d, err
}

// collect sends the operation to the tablet that holds the position, up to ten times, until the
// tablet's epoch is the same after the answer: a tablet that splits may respond for its left half
// only. Otherwise it returns errBlocked.
func (c *cycle) collect(
	ctx context.Context, at wire.Position, op *pb.CollectRequest,
) (*pb.CollectResponse, *pb.TabletDescriptor, error) {
	const tries = 10 // limit of consecutive requests, each with another epoch of the tablet
	for range tries {
		resp, d, err := c.send(ctx, at, &pb.TabletRequest{
			Op: &pb.TabletRequest_Collect{Collect: op},
		})
		if err != nil {
			return nil, nil, err
		}
		if resp.GetCollect() == nil {
			return nil, nil, fmt.Errorf("collector: tablet %d sent a response of an unexpected type",
				d.GetTabletId())
		}
		now, err := c.tablet(ctx, at)
		if err != nil {
			return nil, nil, err
		}
		if now.GetTablet().GetTabletId() == d.GetTabletId() &&
			now.GetTablet().GetEpoch() == d.GetEpoch() {
			return resp.GetCollect(), d, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: the tablet at table %d row %.64q changed during each of %d requests (splits, merges, moves of replicas)",
		errBlocked, at.Table, at.Row, tries)
}

// tablet returns the status of the tablet that holds the position.
func (c *cycle) tablet(ctx context.Context, at wire.Position) (*pb.StatusResponse, error) {
	resp, d, err := c.send(ctx, at, &pb.TabletRequest{
		Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
	})
	if err != nil {
		return nil, err
	}
	// A tablet answers a status request for any position: the sender's map may be old.
	if s := resp.GetStatus(); s != nil && wire.Holds(s.Tablet, at) {
		return s, nil
	}
	return nil, fmt.Errorf("%w: tablet %d has just been split or merged", errBlocked, d.GetTabletId())
}

// survey returns the status of all tablets in range order, to determine whether there is anything
// to do. The statuses come from the overview and may be some seconds old. If the overview has a
// gap, or mixes statuses from before and after a split, survey asks every tablet instead.
func (c *cycle) survey(ctx context.Context) ([]*pb.StatusResponse, error) {
	if c.cfg.Overview == nil {
		return c.tablets(ctx)
	}
	all, err := c.cfg.Overview.Leaders(ctx)
	if err != nil {
		return nil, err
	}
	if out := contiguous(all); out != nil {
		return out, nil
	}
	return c.tablets(ctx)
}

// contiguous returns the statuses of leaders in range order, or nil unless their tablets
// cover every position of user tables exactly once.
func contiguous(all []*pb.StatusResponse) (out []*pb.StatusResponse) {
	for _, s := range all {
		end, bounded := wire.EndOf(s.GetTablet())
		if s.GetLeader() && (!bounded || walkStart.Less(end)) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *pb.StatusResponse) int {
		return wire.StartOf(a.Tablet).Compare(wire.StartOf(b.Tablet))
	})
	at, bounded := walkStart, true
	for i, s := range out {
		// Only the first tablet may begin before the position: it can hold meta's table too.
		if !bounded || wire.StartOf(s.Tablet) != at && (i > 0 || !wire.Holds(s.Tablet, at)) {
			return nil
		}
		at, bounded = wire.EndOf(s.Tablet)
	}
	if bounded {
		return nil
	}
	return out
}

// tablets asks every tablet for its status and returns them in range order.
func (c *cycle) tablets(ctx context.Context) ([]*pb.StatusResponse, error) {
	var out []*pb.StatusResponse
	for at := walkStart; ; {
		s, err := c.tablet(ctx, at)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
		end, bounded := wire.EndOf(s.Tablet)
		if !bounded {
			return out, nil
		}
		at = end
	}
}

// send sends a request to the tablet at the position, and waits for the answer for at most
// requestTimeout.
func (c *cycle) send(
	ctx context.Context, at wire.Position, req *pb.TabletRequest,
) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.cfg.Client.Send(ctx, at, req)
}
