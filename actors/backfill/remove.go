package backfill

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Removal of what retired observers leave behind, on the actor's goroutine; the requests of one
// step run concurrently, and the step waits for all of them. Every request is idempotent: a crash
// or a failure repeats the walk over the observer's entries from its start.

const (
	removeBatch       = 16 << 10 // most entries of a group removed in one step
	removeConcurrency = 64       // most requests at once
)

// remove performs one step of removing a retired observer's notifications and, if its column has no
// other observer, its intents. A step that finds nothing removes the observer from the catalogue.
func (w *worker) remove(ctx context.Context, o *pb.ObserverInfo, c *pb.Catalogue) progress {
	// The catalogue may record the retirement before the tablets have applied it, because
	// the process that wrote it died in between.
	if !w.synced[o.Name] {
		syncCtx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		if err := w.cfg.Meta.Sync(syncCtx); err != nil {
			return w.removeFailed(ctx, o, err)
		}
		w.synced[o.Name] = true
	}
	removed := 0
	groups := []mvcc.Group{mvcc.GroupNotify, mvcc.GroupIntent}
	if slices.ContainsFunc(c.GetObservers(), func(other *pb.ObserverInfo) bool {
		return !other.Retired && wire.ColumnOf(other) == wire.ColumnOf(o)
	}) {
		groups = groups[:1]
	}
	for _, group := range groups {
		n, err := w.clearGroup(ctx, o, group)
		if err != nil {
			return w.removeFailed(ctx, o, err)
		}
		removed += n
	}
	if removed > 0 {
		w.cfg.Logger.Debug("backfill: removed entries of a retired observer",
			"observer", o.Name, "entries", removed)
		return progressMore // until a walk finds nothing
	}
	forgetCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := w.cfg.Meta.ForgetObserver(forgetCtx, o.Name); err != nil {
		return w.removeFailed(ctx, o, err)
	}
	delete(w.synced, o.Name)
	w.cfg.Logger.Info("backfill: removed a retired observer", "observer", o.Name)
	return progressDone
}

// clearGroup removes up to removeBatch notifications of the observer, or intents of its column, and
// returns the number found.
func (w *worker) clearGroup(ctx context.Context, o *pb.ObserverInfo,
	group mvcc.Group) (removed int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, walkCtx := errgroup.WithContext(ctx)
	requests.SetLimit(removeConcurrency)
	column := wire.NotifyColumn(o)
	if group == mvcc.GroupIntent {
		column = wire.ColumnOf(o)
	}
	for e, err := range w.cfg.Client.WalkColumn(walkCtx, group, column) {
		if err != nil {
			// If a failed request has canceled the walk, return the request's error.
			if cause := requests.Wait(); cause != nil {
				err = cause
			}
			return removed, err
		}
		requests.Go(func() error { return w.removeEntry(walkCtx, o.Name, e) })
		if removed++; removed == removeBatch {
			break
		}
	}
	return removed, requests.Wait()
}

// removeEntry removes one notification, or rolls back one intent.
func (w *worker) removeEntry(ctx context.Context, observer string, e *pb.WalkEntry) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	req := &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{
		ClearNotify: &pb.ClearNotifyRequest{
			Cell: e.Cell, UpTo: uint64(mvcc.MaxTimestamp), Observer: observer,
		},
	}}
	if e.GetIntent() != nil {
		// Roll back the intent alone, whatever the outcome of its transaction: no observer
		// is left to be notified.
		req = &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{
			ResolveLock: &pb.ResolveLockRequest{StartTs: e.Ts, Intents: []*pb.Cell{e.Cell}},
		}}
	}
	at := wire.Position{Table: mvcc.TableID(e.Cell.GetTable()), Row: wire.String(e.Cell.GetRow())}
	_, _, err := w.cfg.Client.Send(ctx, at, req)
	return err
}

func (w *worker) removeFailed(ctx context.Context, o *pb.ObserverInfo, err error) progress {
	if ctx.Err() == nil {
		w.cfg.Logger.Warn("backfill: removal failed; trying again", "observer", o.Name, "error",
			err)
	}
	return progressFailed
}
