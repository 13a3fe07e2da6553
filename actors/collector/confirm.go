package collector

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// The step that makes collection safe: it finds transactions from below the target that are still
// open and resolves them. It runs on the actor's goroutine; resolutions of one round run
// concurrently, and the round waits for all of them.

const (
	confirmRounds = 1000 // most requests to one tablet in one turn
	resolvers     = 8    // most resolutions at once
)

// confirm asks the tablet whether everything in it that started below the target is settled, and
// resolves the rest. It ends for this turn, with errBlocked, when a round resolves nothing, or
// after confirmRounds. It returns the descriptor of the tablet that confirmed, or errNoBound if the
// tablet lacks the bound.
func (c *cycle) confirm(ctx context.Context, rec *wire.Collection,
	at wire.Position) (*pb.TabletDescriptor, error) {
	for range confirmRounds {
		answer, d, err := c.collect(ctx, at, &pb.CollectRequest{Confirm: rec.Target})
		switch {
		case errors.Is(err, txn.ErrInvalid), err == nil && answer.Bound < rec.Target:
			return nil, errNoBound
		case err != nil:
			return nil, err
		case answer.Confirmed:
			return d, nil
		case len(answer.Unsettled) == 0:
			return nil, fmt.Errorf("%w: transactions that began below %d are being committed "+
				"in tablet %d", errBlocked, rec.Target, d.TabletId)
		}
		resolved, err := c.resolve(ctx, rec, answer.Unsettled)
		if err != nil {
			return nil, err
		}
		if !resolved {
			l := answer.Unsettled[0]
			cell := l.GetCell()
			return nil, fmt.Errorf("%w: transaction %d, which began before the bound, "+
				"locks table %d row %.64q in tablet %d",
				errBlocked, l.GetLock().GetStartTs(), cell.GetTable(), cell.GetRow(), d.TabletId)
		}
	}
	return nil, fmt.Errorf("%w: too many locks of transactions that began below %d to resolve "+
		"in one turn", errBlocked, rec.Target)
}

// resolve resolves locks and intents and reports whether it has resolved any. It returns an error
// only if it has not.
func (c *cycle) resolve(ctx context.Context, rec *wire.Collection,
	unsettled []*pb.LockInfo) (bool, error) {
	now, err := c.cfg.Client.Timestamp(ctx)
	if err != nil {
		return false, err
	}
	// After ForceAfter even live transactions are aborted, so that one client that sends
	// heartbeats forever cannot keep the whole cluster's history. The client gets
	// ErrConflict or has its commit refused; nothing is half committed.
	resolveOne := c.cfg.Client.ResolveLock
	waited := now.Millis() - mvcc.Timestamp(rec.StepTs).Millis()
	if waited >= c.cfg.ForceAfter.Milliseconds() {
		resolveOne = c.cfg.Client.ForceLock
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var resolved atomic.Bool
	var group errgroup.Group
	group.SetLimit(resolvers)
	for _, l := range unsettled {
		group.Go(func() error {
			ok, err := resolveOne(ctx, wire.LockInfo(l))
			if ok {
				resolved.Store(true)
			}
			return err
		})
	}
	if err := group.Wait(); !resolved.Load() {
		return false, err
	}
	return true, nil // there is progress; the next round meets the error again if it lasts
}
