package merger

import (
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file runs one turn. It runs on the actor's goroutine, one request after the other;
// nothing is in flight between turns.

// turn finishes half-done merges; if there are none it begins merges, unless FinishOnly, until
// turnTime is over. It returns the pause until the next turn.
func (w *work) turn(ctx context.Context, now time.Time) time.Duration {
	leaders, err := w.leaders(ctx)
	if err == nil {
		if w.finish(ctx, leaders) {
			return w.cfg.Interval / 4
		}
		if !w.cfg.FinishOnly {
			err = w.merge(ctx, now, leaders)
		}
	}
	if err != nil && ctx.Err() == nil {
		w.cfg.Logger.Warn("merger: turn failed, will retry", "error", err)
	}
	return w.cfg.Interval
}

// leaders returns the statuses of the leaders of user tables' tablets in range order.
func (w *work) leaders(ctx context.Context) (out []*pb.StatusResponse, err error) {
	all, err := w.cfg.Overview.Leaders(ctx)
	for _, s := range all {
		if s.GetLeader() && wire.StartOf(s.Tablet).Table >= mvcc.FirstUserTable {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *pb.StatusResponse) int {
		return wire.StartOf(a.Tablet).Compare(wire.StartOf(b.Tablet))
	})
	return out, err
}

// finish finishes merges that were half done in the last turn already: their coordinator has
// ended, or will find them done. It reports whether any merge is half done.
func (w *work) finish(ctx context.Context, leaders []*pb.StatusResponse) (half bool) {
	before := w.halfDone
	w.halfDone = map[uint64]uint64{}
	for _, s := range leaders {
		if s.FrozenFor == nil && s.Took == nil {
			continue
		}
		half = true
		id := s.Tablet.TabletId
		if w.halfDone[id] = s.Tablet.Epoch; before[id] != s.Tablet.Epoch {
			continue
		}
		within, cancel := context.WithTimeout(ctx, mergeTimeout)
		err := w.cfg.Meta.Finish(within, s)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("merger: cannot finish a half-done merge, will retry", "tablet", id,
				"error", err)
		}
	}
	return half
}

// merge merges the adjacent pairs of tablets that qualify, until turnTime is over; of pairs in use
// it tries at most one. A merged tablet is the left side of the next pair.
func (w *work) merge(ctx context.Context, now time.Time, leaders []*pb.StatusResponse) error {
	mergeable, err := w.cfg.Meta.Mergeable(ctx)
	if err != nil {
		return err
	}
	for at, until := range w.failed {
		if !now.Before(until) {
			delete(w.failed, at)
		}
	}
	small, began := w.small, time.Now()
	w.small = map[wire.Position]time.Time{}
	used := false // a merge of two tablets in use was tried: at most one per turn
	for i := 1; i < len(leaders); i++ {
		left, right := leaders[i-1], leaders[i]
		at := wire.StartOf(right.Tablet)
		end, bounded := wire.EndOf(left.Tablet)
		may, unused := mergeable(left.Tablet, right.Tablet)
		if !bounded || end != at || !may || !w.fit(left, right, unused) {
			continue
		}
		since, known := small[at]
		if !known {
			since = now
		}
		w.small[at] = since
		switch {
		case ctx.Err() != nil || time.Since(began) > turnTime || now.Before(w.failed[at]):
			continue
		case !unused && (used || now.Sub(since) < w.cfg.After):
			continue
		}
		used = used || !unused
		if d := w.mergeAt(ctx, now, at); d != nil {
			delete(w.small, at)
			leaders[i] = &pb.StatusResponse{
				Tablet: d, SizeBytes: left.SizeBytes + right.SizeBytes, Load: left.Load + right.Load,
			}
		}
	}
	return nil
}

// fit reports whether both tablets are small enough to be merged, in load and in size. An unused
// right one that is nearly empty fits a left one of any size.
func (w *work) fit(left, right *pb.StatusResponse, unused bool) bool {
	if left.Load+right.Load > w.cfg.MaxLoad/mergeDivisor {
		return false
	}
	return left.SizeBytes+right.SizeBytes <= w.cfg.MaxBytes/mergeDivisor ||
		unused && right.SizeBytes <= w.cfg.MaxBytes/emptyDivisor
}

// mergeAt merges the tablets at one boundary and returns the result; nil if that failed.
func (w *work) mergeAt(ctx context.Context, now time.Time, at wire.Position) *pb.TabletDescriptor {
	within, cancel := context.WithTimeout(ctx, mergeTimeout)
	defer cancel()
	d, err := w.cfg.Meta.MergeAt(within, at)
	if err != nil {
		w.failed[at] = now.Add(cooldown)
		if ctx.Err() == nil {
			w.cfg.Logger.Info("merger: cannot merge two tablets yet", "table", at.Table, "row", at.Row, "error", err)
		}
		return nil
	}
	w.merged.Add(1)
	w.cfg.Logger.Info("merger: merged two tablets", "tablet", d.GetTabletId(), "table", at.Table)
	return d
}
