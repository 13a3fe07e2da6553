package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// cycle is the collector's work. It belongs to its actor, except status.
type cycle struct {
	cfg    Config
	status board
}

// first is where every walk begins: meta's own table has no history.
var first = wire.Position{Table: mvcc.FirstUserTable}

var (
	// errBlocked ends a turn that can't go on yet; its text says why.
	errBlocked = errors.New("collector: waiting")
	// errRaced ends a turn because the record or the leases have changed under it.
	errRaced = errors.New("collector: another process has changed the record")
	// errNoBound: a tablet does not have the bound that is to be confirmed.
	errNoBound = errors.New("collector: a tablet lacks the bound")
)

// turn does as many steps as it can, at most one cycle's. Every turn begins with the
// record: what is in memory may be old.
func (c *cycle) turn(ctx context.Context) {
	err := c.steps(ctx)
	blocked := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, errRaced) {
		blocked = err.Error()
		if !errors.Is(err, errBlocked) {
			c.cfg.Logger.Warn("history: a step failed and is repeated", "error", err)
		}
	}
	c.status.set(func(s *pb.HistoryStatus) { s.BlockedBy = blocked })
}

func (c *cycle) steps(ctx context.Context) error {
	rec, leases, err := c.cfg.Record.Collection(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		c.publish(rec)
		switch rec.Step {
		case wire.Collection_STEP_IDLE:
			rec, err = c.begin(ctx, rec, leases)
		case wire.Collection_STEP_BIND:
			rec, err = c.walk(ctx, rec, c.bind)
		case wire.Collection_STEP_CONFIRM:
			rec, err = c.walk(ctx, rec, c.confirm)
			if errors.Is(err, errNoBound) { // cannot be; but then confirming would never end
				_, err = c.enter(ctx, rec, wire.Collection_STEP_BIND, nil)
			}
		case wire.Collection_STEP_RAISE:
			if rec, err = c.walk(ctx, rec, c.raise); err == nil {
				c.publish(rec)
				return nil
			}
		default:
			return fmt.Errorf("collector: the record is of a newer version: step %v", rec.Step)
		}
		if err != nil || rec == nil {
			return err
		}
	}
	return ctx.Err()
}

// publish tells the status what is being done.
func (c *cycle) publish(rec *wire.Collection) {
	c.status.set(func(s *pb.HistoryStatus) {
		if s.Target = 0; rec.Step != wire.Collection_STEP_IDLE {
			s.Target = rec.Target
		}
	})
}

// begin chooses a target if there is anything to collect; nil if there is not.
func (c *cycle) begin(ctx context.Context, rec *wire.Collection, leases *wire.Leases) (*wire.Collection, error) {
	tablets, err := c.survey(ctx)
	if err != nil {
		return nil, err
	}
	garbage := false
	for _, t := range tablets {
		garbage = garbage || t.Garbage > 0
	}
	if c.cfg.Drops != nil {
		waiting, err := c.cfg.Drops.Tend(ctx, tablets)
		if err != nil {
			return nil, err
		}
		garbage = garbage || waiting
	}
	now, err := c.cfg.Client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	target, holder := c.target(now, leases)
	switch {
	case !garbage:
		return nil, nil
	case uint64(target) > rec.Target:
	case holder != "":
		return nil, fmt.Errorf("%w: %s holds history from %d on", errBlocked, holder, target)
	default:
		return nil, nil
	}
	to := &wire.Collection{
		Step: wire.Collection_STEP_BIND, Target: uint64(target), NextTable: uint32(first.Table), StepTs: uint64(now), Safepoint: rec.Safepoint,
	}
	return to, c.save(ctx, rec, to, leases)
}

// target is the greatest timestamp below which history may go (invariant 1), and whose
// lease keeps it that low.
func (c *cycle) target(now mvcc.Timestamp, leases *wire.Leases) (target mvcc.Timestamp, holder string) {
	target, floor := before(now, c.cfg.History), before(now, c.cfg.MaxHold)
	live, oldest := uint32(0), mvcc.Timestamp(0)
	for _, l := range leases.Leases {
		if l.Expires <= uint64(now) || mvcc.Timestamp(l.Oldest) < floor || broken.IgnoreHolds {
			continue // over, or too old to be allowed to hold any more
		}
		live++
		if at := mvcc.Timestamp(l.Oldest); oldest == 0 || at < oldest {
			oldest = at
			if at < target {
				target, holder = at, l.Holder
			}
		}
	}
	c.status.set(func(s *pb.HistoryStatus) { s.Holds, s.OldestHold = live, uint64(oldest) })
	return target, holder
}

// before is the timestamp d earlier than t; 0 if there is none.
func before(t mvcc.Timestamp, d time.Duration) mvcc.Timestamp {
	return mvcc.TimestampAt(max(0, t.Millis()-d.Milliseconds()))
}

// enter begins another step of the same cycle, from the first position.
func (c *cycle) enter(ctx context.Context, rec *wire.Collection, step wire.Collection_Step, more func(*wire.Collection)) (*wire.Collection, error) {
	now, err := c.cfg.Client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	to := &wire.Collection{
		Step: step, Target: rec.Target, NextTable: uint32(first.Table), StepTs: uint64(now), Safepoint: rec.Safepoint,
	}
	if more != nil {
		more(to)
	}
	return to, c.save(ctx, rec, to, nil)
}

func (c *cycle) save(ctx context.Context, from, to *wire.Collection, seen *wire.Leases) error {
	ok, err := c.cfg.Record.SaveCollection(ctx, from, to, seen)
	if err == nil && !ok {
		err = errRaced
	}
	return err
}
