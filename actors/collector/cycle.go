package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The steps of a cycle, on the actor's goroutine. All state is in the record in meta: a turn reads
// it, and each step does its walk and replaces the record with a compare-and-set, so of two
// concurrent collectors one fails with errRaced.

// cycle is the actor's state. Only the actor's goroutine uses it, except status.
type cycle struct {
	cfg    Config
	status statusBoard
}

// walkStart is the start position of every walk. Meta's own table, before it, has no history.
var walkStart = wire.Position{Table: mvcc.FirstUserTable}

var (
	// errBlocked ends a turn that cannot proceed yet; the error's text says why.
	errBlocked = errors.New("collector: waiting")
	// errRaced ends a turn because the record or the leases have changed in the meantime.
	errRaced = errors.New("collector: another process has changed the record or the leases")
	// errNoBound reports a tablet without the bound to be confirmed.
	errNoBound = errors.New("collector: a tablet lacks the bound")
)

// turn does as many steps as it can, up to the end of one cycle. It reads the record
// first, because another collector may have changed it since the last turn.
func (c *cycle) turn(ctx context.Context) {
	err := c.steps(ctx)
	blocked := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, errRaced) {
		blocked = err.Error()
		if !errors.Is(err, errBlocked) {
			c.cfg.Logger.Warn("history: a step failed; trying again", "error", err)
		}
	}
	c.status.update(func(s *pb.HistoryStatus) { s.BlockedBy = blocked })
}

// steps executes the steps of the cycle in order until one fails, the cycle is complete, or there
// is nothing to collect.
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
			rec, err = c.walk(ctx, rec, c.publishTarget)
		case wire.Collection_STEP_CONFIRM:
			rec, err = c.walk(ctx, rec, c.confirm)
			// No known fault makes a tablet lose its bound. The next turn binds again: to do so at
			// once might never end.
			if errors.Is(err, errNoBound) {
				if _, failed := c.enterStep(ctx, rec, wire.Collection_STEP_BIND); failed != nil {
					err = failed
				}
			}
		case wire.Collection_STEP_RAISE:
			if rec, err = c.walk(ctx, rec, c.publishTarget); err == nil {
				c.publish(rec)
				return nil
			}
		default:
			return fmt.Errorf("collector: the record in meta has the unknown step %v, written by "+
				"a newer version; upgrade this node", rec.Step)
		}
		if err != nil || rec == nil {
			return err
		}
	}
	return ctx.Err()
}

// publish sets the target in the status; 0 between cycles.
func (c *cycle) publish(rec *wire.Collection) {
	c.status.update(func(s *pb.HistoryStatus) {
		if s.Target = 0; rec.Step != wire.Collection_STEP_IDLE {
			s.Target = rec.Target
		}
	})
}

// begin chooses a target and stores the record of a new cycle. It returns nil if there is
// nothing to collect, and errBlocked if a lease prevents a higher target than the last.
func (c *cycle) begin(
	ctx context.Context, rec *wire.Collection, leases *wire.Leases,
) (*wire.Collection, error) {
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
		Step: wire.Collection_STEP_BIND, Target: uint64(target), NextTable: uint32(walkStart.Table),
		StepTs: uint64(now), Safepoint: rec.Safepoint,
	}
	return to, c.save(ctx, rec, to, leases)
}

// target returns the greatest timestamp below which history may be removed.
// If a lease determines it, holder is the lease's holder.
func (c *cycle) target(now mvcc.Timestamp,
	leases *wire.Leases) (target mvcc.Timestamp, holder string) {
	target, floor := earlier(now, c.cfg.History), earlier(now, c.cfg.MaxHold)
	live, oldest := uint32(0), mvcc.Timestamp(0)
	for _, l := range leases.Leases {
		if l.Expires <= uint64(now) || mvcc.Timestamp(l.Oldest) < floor {
			continue // expired, or older than MaxHold allows
		}
		live++
		if at := mvcc.Timestamp(l.Oldest); oldest == 0 || at < oldest {
			oldest = at
			if at < target {
				target, holder = at, l.Holder
				if l.Backup {
					holder = "backup " + l.Holder
				}
			}
		}
	}
	c.status.update(func(s *pb.HistoryStatus) {
		s.Holds, s.OldestHold = live, uint64(oldest)
		s.BackupHolds, s.MaxHoldMs = wire.BackupHolds(leases), uint64(c.cfg.MaxHold.Milliseconds())
	})
	return target, holder
}

// earlier returns the timestamp d before t, at least 0.
func earlier(t mvcc.Timestamp, d time.Duration) mvcc.Timestamp {
	return mvcc.TimestampAt(max(0, t.Millis()-d.Milliseconds()))
}

// enterStep stores and returns the record of another step of the same cycle, at the start
// of its walk. The end of the cycle makes the target the safepoint.
func (c *cycle) enterStep(
	ctx context.Context, rec *wire.Collection, step wire.Collection_Step,
) (*wire.Collection, error) {
	now, err := c.cfg.Client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	to := &wire.Collection{
		Step: step, Target: rec.Target, NextTable: uint32(walkStart.Table),
		StepTs: uint64(now), Safepoint: rec.Safepoint,
	}
	if step == wire.Collection_STEP_IDLE {
		to.Safepoint = rec.Target
	}
	return to, c.save(ctx, rec, to, nil)
}

// save replaces the record. It returns errRaced if the record, or seen, has changed.
func (c *cycle) save(ctx context.Context, from, to *wire.Collection, seen *wire.Leases) error {
	ok, err := c.cfg.Record.SaveCollection(ctx, from, to, seen)
	if err == nil && !ok {
		err = errRaced
	}
	return err
}
