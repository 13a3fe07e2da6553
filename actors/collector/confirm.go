package collector

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Bounds of confirmation: how often one tablet is asked in one turn, and resolutions at once.
const (
	confirmRounds = 1000
	resolvers     = 8
)

// confirm asks the tablet whether nothing that began below the target is open in it, and
// gets out of the way what is. It gives up for this turn when a round has resolved
// nothing.
func (c *cycle) confirm(ctx context.Context, rec *wire.Collection, at wire.Position) (*pb.TabletDescriptor, error) {
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
			return nil, fmt.Errorf("%w: commits from below %d are under way in tablet %d", errBlocked, rec.Target, d.TabletId)
		}
		resolved, err := c.resolve(ctx, rec, answer.Unsettled)
		if err != nil {
			return nil, err
		}
		if resolved == 0 {
			l := answer.Unsettled[0]
			return nil, fmt.Errorf("%w: transaction %d, which has lived since before the bound, locks table %d row %.64q in tablet %d",
				errBlocked, l.GetLock().GetStartTs(), l.GetCell().GetTable(), l.GetCell().GetRow(), d.TabletId)
		}
	}
	return nil, fmt.Errorf("%w: there are very many locks from below %d", errBlocked, rec.Target)
}

// resolve resolves locks and intents, a few at once, and counts those that it could.
func (c *cycle) resolve(ctx context.Context, rec *wire.Collection, unsettled []*pb.LockInfo) (resolved int, err error) {
	now, err := c.cfg.Client.Timestamp(ctx)
	if err != nil {
		return 0, err
	}
	// A transaction that old is given up, so that one client that beats for ever does not
	// keep everybody's history. It is told ErrConflict or finds its commit refused: an
	// abort, never half a commit.
	one := c.cfg.Client.ResolveLock
	if force := now.Millis()-mvcc.Timestamp(rec.StepTs).Millis() >= c.cfg.ForceAfter.Milliseconds(); force {
		one = c.cfg.Client.ForceLock
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	done := make([]bool, len(unsettled))
	var group errgroup.Group
	group.SetLimit(resolvers)
	for i, l := range unsettled {
		group.Go(func() error {
			ok, err := one(ctx, wire.LockInfo(l))
			done[i] = ok
			return err
		})
	}
	err = group.Wait()
	for _, ok := range done {
		if ok {
			resolved++
		}
	}
	if resolved > 0 {
		err = nil // some progress: the next round tells the rest
	}
	return resolved, err
}
