package splitter

import (
	"context"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file runs one turn. It runs on the actor's goroutine, one request after the other;
// nothing is in flight between turns.

// turn checks all tablets once and splits those over a limit, each at most once. A half that is
// still too large is split in a later turn.
func (w *work) turn(ctx context.Context, now time.Time) {
	tablets, total, err := w.candidates(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.cfg.Logger.Warn("splitter: reading the tablets' status failed; trying again", "error",
				err)
		}
		return
	}
	for at, until := range w.cooldown {
		if !now.Before(until) {
			delete(w.cooldown, at)
		}
	}
	room := w.cfg.MaxTablets - total
	for _, s := range tablets {
		if room <= 0 || ctx.Err() != nil {
			return
		}
		if w.splitIfNeeded(ctx, now, s) {
			room--
		}
	}
}

// splitIfNeeded splits the tablet if it is over a limit and has proposed a row. It reports
// whether it did. Size goes before load.
func (w *work) splitIfNeeded(ctx context.Context, now time.Time, s *pb.StatusResponse) bool {
	start := wire.StartOf(s.Tablet)
	switch key := wire.String(s.SizeKey); {
	case !s.Leader:
		return false
	case s.SizeBytes >= w.cfg.MaxBytes && inside(s.Tablet, key):
		if !w.split(ctx, s, key) {
			return false
		}
		w.bySize.Add(1)
		return true
	}
	key := wire.String(s.LoadKey)
	if s.Load < w.cfg.MaxLoad || now.Before(w.cooldown[start]) {
		return false
	}
	if !inside(s.Tablet, key) || !w.split(ctx, s, key) {
		return false
	}
	w.byLoad.Add(1)
	until := now.Add(cooldown)
	w.cooldown[start], w.cooldown[wire.Position{Table: start.Table, Row: key}] = until, until
	return true
}

// inside reports whether a split at the row, in the tablet's first table, would leave two
// tablets.
func inside(d *pb.TabletDescriptor, row string) bool {
	at := wire.Position{Table: mvcc.TableID(d.GetStartTable()), Row: row}
	return row != "" && wire.Holds(d, at) && wire.StartOf(d) != at
}

// split splits the tablet at the row and reports whether it succeeded. Errors are logged;
// the next turn tries again.
func (w *work) split(ctx context.Context, s *pb.StatusResponse, row string) bool {
	splitCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	table := mvcc.TableID(s.Tablet.GetStartTable())
	if err := w.cfg.Meta.SplitAt(splitCtx, table, row); ctx.Err() != nil {
		return false
	} else if err != nil {
		w.cfg.Logger.Warn("splitter: splitting a tablet failed; trying again",
			"tablet", s.Tablet.GetTabletId(), "error", err)
		return false
	}
	w.cfg.Logger.Info("tablet split", "tablet", s.Tablet.GetTabletId(), "bytes", s.SizeBytes,
		"load", s.Load)
	return true
}

// candidates returns the status of the tablets that may have to be split, and the number of all
// user tablets known. It queries only tablets that are large or busy in the overview.
func (w *work) candidates(ctx context.Context) (out []*pb.StatusResponse, total int, err error) {
	all, err := w.cfg.Overview.Leaders(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range all {
		at := wire.StartOf(s.GetTablet())
		if !s.GetLeader() || at.Table < mvcc.FirstUserTable {
			continue
		}
		total++
		if s.SizeBytes < w.measureAbove() && s.Load < w.cfg.MaxLoad {
			continue
		}
		if s, err = w.tablet(ctx, at); err != nil {
			return nil, 0, err
		}
		out = append(out, s)
	}
	return out, total, nil
}

// measureAbove returns the size in bytes from which a tablet determines the row that halves it.
// At half of MaxBytes it has time to find the row before the split is due.
func (w *work) measureAbove() uint64 { return max(w.cfg.MaxBytes/2, 1) }

// tablet returns the status of the tablet that holds the position.
func (w *work) tablet(ctx context.Context, at wire.Position) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	op := &pb.TabletRequest_Status{Status: &pb.StatusRequest{MeasureAbove: w.measureAbove()}}
	resp, d, err := w.cfg.Client.Send(ctx, at, &pb.TabletRequest{Op: op})
	if err != nil {
		return nil, err
	}
	s := resp.GetStatus()
	if s == nil || !wire.Holds(s.Tablet, at) {
		return nil, fmt.Errorf("splitter: tablet %d has just been split or merged; "+
			"the next turn starts over", d.GetTabletId())
	}
	return s, nil
}
