package merger

import (
	"cmp"
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file runs one turn. It runs on the actor's goroutine, one request after the other;
// nothing is in flight between turns.

// turn finishes what is half done and merges what may be merged, as far as it comes within
// turnTime. It returns the pause until the next turn.
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
		w.cfg.Logger.Warn("merger: a turn failed; trying again", "error", err)
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
		s, t := wire.StartOf(a.Tablet), wire.StartOf(b.Tablet)
		return cmp.Or(cmp.Compare(s.Table, t.Table), cmp.Compare(s.Row, t.Row))
	})
	return out, err
}

// finish finishes merges that were half done in the last turn already: whoever began them has
// gone, or will find them done. It reports whether any merge is half done.
func (w *work) finish(ctx context.Context, leaders []*pb.StatusResponse) (half bool) {
	before := w.half
	w.half = map[uint64]uint64{}
	for _, s := range leaders {
		if s.FrozenFor == nil && s.Took == nil {
			continue
		}
		half = true
		id := s.Tablet.TabletId
		if w.half[id] = s.Tablet.Epoch; before[id] != s.Tablet.Epoch {
			continue
		}
		within, cancel := context.WithTimeout(ctx, mergeTimeout)
		err := w.cfg.Meta.Finish(within, s)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("merger: a half-done merge could not be finished; trying again", "tablet", id,
				"error", err)
		}
	}
	return half
}

// merge goes through the adjacent pairs of tablets and merges those that may be. What comes of
// a pair is the left side of the next one.
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
	used := false // two used tablets were merged: that is enough for a turn
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

// fit reports whether both tablets are small enough to be one. Nearly nothing fits beside a
// tablet of any size.
func (w *work) fit(left, right *pb.StatusResponse, unused bool) bool {
	if left.Load+right.Load > w.cfg.MaxLoad/share {
		return false
	}
	return left.SizeBytes+right.SizeBytes <= w.cfg.MaxBytes/share ||
		unused && right.SizeBytes <= w.cfg.MaxBytes/shareOfNothing
}

// mergeAt takes one boundary away, and returns the tablet that holds it then; nil if it could
// not be done now.
func (w *work) mergeAt(ctx context.Context, now time.Time, at wire.Position) *pb.TabletDescriptor {
	within, cancel := context.WithTimeout(ctx, mergeTimeout)
	defer cancel()
	d, err := w.cfg.Meta.MergeAt(within, at)
	if err != nil {
		w.failed[at] = now.Add(cooldown)
		if ctx.Err() == nil {
			w.cfg.Logger.Info("merger: two tablets are not merged yet", "table", at.Table, "row", at.Row, "error", err)
		}
		return nil
	}
	w.merged.Add(1)
	w.cfg.Logger.Info("tablets merged", "tablet", d.GetTabletId(), "table", at.Table)
	return d
}
