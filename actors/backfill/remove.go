package backfill

import (
	"context"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Bounds of a removal: entries of one step, and requests at once.
const (
	removeStep  = 16 << 10
	removeAtOne = 64
)

// remove does one step of removing what a retired observer has left. When there was
// nothing, the observer is forgotten.
func (w *worker) remove(ctx context.Context, o *pb.ObserverInfo) progress {
	// The catalogue may say "retired" before the tablets have heard: its writer may have
	// died in between.
	if !w.synced[o.Name] {
		asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
		defer cancel()
		if err := w.cfg.Meta.Sync(asked); err != nil {
			return w.removeFailed(ctx, o, err)
		}
		w.synced[o.Name] = true
	}
	removed := 0
	for _, group := range []mvcc.Group{mvcc.GroupNotify, mvcc.GroupIntent} {
		n, err := w.clear(ctx, o, group)
		if err != nil {
			return w.removeFailed(ctx, o, err)
		}
		removed += n
	}
	if removed > 0 {
		w.cfg.Logger.Debug("backfill: removed what a retired observer left", "observer", o.Name, "entries", removed)
		return more // until a walk finds nothing
	}
	asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if err := w.cfg.Meta.ForgetObserver(asked, o.Name); err != nil {
		return w.removeFailed(ctx, o, err)
	}
	delete(w.synced, o.Name)
	w.cfg.Logger.Info("backfill: retired observer is gone", "observer", o.Name)
	return ended
}

// clear removes up to removeStep entries of a group of the observer's column.
func (w *worker) clear(ctx context.Context, o *pb.ObserverInfo, group mvcc.Group) (removed int, err error) {
	walking, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, within := errgroup.WithContext(walking)
	requests.SetLimit(removeAtOne)
	for e, err := range w.cfg.Client.WalkColumn(within, group, mvcc.TableID(o.Table), wire.String(o.Column)) {
		if err != nil {
			if failed := requests.Wait(); failed != nil { // the cause, if within has ended
				err = failed
			}
			return removed, err
		}
		requests.Go(func() error { return w.drop(within, e) })
		if removed++; removed == removeStep {
			break
		}
	}
	return removed, requests.Wait()
}

// drop removes one entry.
func (w *worker) drop(ctx context.Context, e *pb.WalkEntry) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	req := &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{
		ClearNotify: &pb.ClearNotifyRequest{Cell: e.Cell, UpTo: uint64(mvcc.MaxTimestamp)},
	}}
	if e.GetIntent() != nil {
		// Rolled back by itself, whatever becomes of its transaction: nobody wants to
		// hear of that any more.
		req = &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{
			ResolveLock: &pb.ResolveLockRequest{StartTs: e.Ts, Intents: []*pb.Cell{e.Cell}},
		}}
	}
	_, _, err := w.cfg.Client.Send(ctx, wire.Position{Table: mvcc.TableID(e.Cell.GetTable()), Row: wire.String(e.Cell.GetRow())}, req)
	return err
}

func (w *worker) removeFailed(ctx context.Context, o *pb.ObserverInfo, err error) progress {
	if ctx.Err() == nil {
		w.cfg.Logger.Warn("backfill: removal failed; trying again", "observer", o.Name, "error", err)
	}
	return failure
}
