package collector

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// saveEvery is after how many tablets a walk's progress is made durable.
const saveEvery = 32

// visit does a step at the tablet that holds a position. It returns the descriptor that
// the step was done under.
type visit func(ctx context.Context, rec *wire.Collection, at wire.Position) (*pb.TabletDescriptor, error)

// walk does the record's step from its position to the end of everything, and then enters
// the next step.
func (c *cycle) walk(ctx context.Context, rec *wire.Collection, do visit) (*wire.Collection, error) {
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
	switch {
	case rec.Step == wire.Collection_STEP_BIND && !broken.EarlyCollect:
		return c.enter(ctx, rec, wire.Collection_STEP_CONFIRM, nil)
	case rec.Step == wire.Collection_STEP_RAISE:
		return c.enter(ctx, rec, wire.Collection_STEP_IDLE, func(to *wire.Collection) { to.Safepoint = rec.Target })
	default:
		return c.enter(ctx, rec, wire.Collection_STEP_RAISE, nil)
	}
}

// bind publishes the target.
func (c *cycle) bind(ctx context.Context, rec *wire.Collection, at wire.Position) (*pb.TabletDescriptor, error) {
	_, d, err := c.collect(ctx, at, &pb.CollectRequest{Bound: rec.Target})
	return d, err
}

// raise makes the target the safepoint.
func (c *cycle) raise(ctx context.Context, rec *wire.Collection, at wire.Position) (*pb.TabletDescriptor, error) {
	_, d, err := c.collect(ctx, at, &pb.CollectRequest{Safepoint: rec.Target})
	return d, err
}

// collect has one step done at a tablet, again until its epoch has not changed meanwhile:
// a tablet that splits while it is asked may answer for its left side only (invariant 2).
func (c *cycle) collect(ctx context.Context, at wire.Position, op *pb.CollectRequest) (*pb.CollectResponse, *pb.TabletDescriptor, error) {
	const tries = 10 // splits of one tablet in a row
	for range tries {
		resp, d, err := c.send(ctx, at, &pb.TabletRequest{Op: &pb.TabletRequest_Collect{Collect: op}})
		if err != nil {
			return nil, nil, err
		}
		if resp.GetCollect() == nil {
			return nil, nil, fmt.Errorf("collector: tablet %d answered something else", d.GetTabletId())
		}
		now, err := c.tablet(ctx, at)
		if err != nil {
			return nil, nil, err
		}
		if now.GetTablet().GetTabletId() == d.GetTabletId() && now.GetTablet().GetEpoch() == d.GetEpoch() {
			return resp.GetCollect(), d, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: the tablet at table %d row %.64q splits again and again", errBlocked, at.Table, at.Row)
}

// tablet is the status of the tablet that holds the position.
func (c *cycle) tablet(ctx context.Context, at wire.Position) (*pb.StatusResponse, error) {
	resp, d, err := c.send(ctx, at, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}})
	if err != nil {
		return nil, err
	}
	// Status is answered whatever the sender believes: the map may be older than the tablet.
	if s := resp.GetStatus(); s != nil && wire.Holds(s.Tablet, at) {
		return s, nil
	}
	return nil, fmt.Errorf("%w: tablet %d has just split", errBlocked, d.GetTabletId())
}

// survey is the status of all tablets, in range order, as of a while ago: whether there
// is anything to do. Where the overview has a gap, or is of before and after a split,
// each tablet is asked.
func (c *cycle) survey(ctx context.Context) ([]*pb.StatusResponse, error) {
	if c.cfg.Overview == nil {
		return c.tablets(ctx)
	}
	all, err := c.cfg.Overview.Leaders(ctx)
	if err != nil {
		return nil, err
	}
	if out := chain(all); out != nil {
		return out, nil
	}
	return c.tablets(ctx)
}

// chain puts the tablets' leaders into range order; nil if they do not cover everything,
// each place once.
func chain(all []*pb.StatusResponse) (out []*pb.StatusResponse) {
	for _, s := range all {
		if end, bounded := wire.EndOf(s.GetTablet()); s.GetLeader() && (!bounded || first.Less(end)) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *pb.StatusResponse) int {
		if wire.StartOf(a.Tablet).Less(wire.StartOf(b.Tablet)) {
			return -1
		}
		return 1
	})
	at, bounded := first, true
	for i, s := range out {
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

// tablets is the status of all tablets, in range order.
func (c *cycle) tablets(ctx context.Context) ([]*pb.StatusResponse, error) {
	var out []*pb.StatusResponse
	for at := first; ; {
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

func (c *cycle) send(ctx context.Context, at wire.Position, req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.cfg.Client.Send(ctx, at, req)
}
