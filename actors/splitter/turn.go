package splitter

import (
	"context"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// turn looks at all tablets once and splits those that call for it, each at most once:
// what is still too large afterwards is split in a later turn.
func (w *work) turn(ctx context.Context, now time.Time) {
	tablets, there, err := w.candidates(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.cfg.Logger.Warn("tablets could not be looked at for splits", "error", err)
		}
		return
	}
	for at, until := range w.cooling {
		if !now.Before(until) {
			delete(w.cooling, at)
		}
	}
	room := w.cfg.MaxTablets - there
	for _, s := range tablets {
		if room <= 0 || ctx.Err() != nil {
			return
		}
		if w.consider(ctx, now, s) {
			room--
		}
	}
}

// consider splits the tablet if it is over a limit and knows where.
func (w *work) consider(ctx context.Context, now time.Time, s *pb.StatusResponse) bool {
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
	if s.Load < w.cfg.MaxLoad || now.Before(w.cooling[start]) || !inside(s.Tablet, key) || !w.split(ctx, s, key) {
		return false
	}
	w.byLoad.Add(1)
	until := now.Add(w.cfg.Cooldown)
	w.cooling[start], w.cooling[wire.Position{Table: start.Table, Row: key}] = until, until
	return true
}

// inside reports whether a split at the row of the tablet's first table would leave two
// tablets (invariant 1).
func inside(d *pb.TabletDescriptor, row string) bool {
	at := wire.Position{Table: mvcc.TableID(d.GetStartTable()), Row: row}
	return row != "" && wire.Holds(d, at) && wire.StartOf(d) != at
}

func (w *work) split(ctx context.Context, s *pb.StatusResponse, row string) bool {
	asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	table := mvcc.TableID(s.Tablet.GetStartTable())
	if err := w.cfg.Meta.SplitAt(asked, table, row); ctx.Err() != nil {
		return false
	} else if err != nil {
		w.cfg.Logger.Warn("a tablet could not be split; it is tried again", "tablet", s.Tablet.GetTabletId(), "error", err)
		return false
	}
	w.cfg.Logger.Info("tablet split", "tablet", s.Tablet.GetTabletId(), "bytes", s.SizeBytes, "load", s.Load)
	return true
}

// candidates is the status of the tablets that may have to be split, and how many there
// are in all. With an overview those are asked that it has as large or as busy; without,
// every one is.
func (w *work) candidates(ctx context.Context) (out []*pb.StatusResponse, there int, err error) {
	if w.cfg.Overview == nil {
		out, err = w.tablets(ctx)
		return out, len(out), err
	}
	all, err := w.cfg.Overview.Leaders(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range all {
		at := wire.StartOf(s.GetTablet())
		if !s.GetLeader() || at.Table < mvcc.FirstUserTable {
			continue
		}
		there++
		if s.SizeBytes < w.measureAbove() && s.Load < w.cfg.MaxLoad {
			continue
		}
		if s, err = w.tablet(ctx, at); err != nil {
			return nil, 0, err
		}
		out = append(out, s)
	}
	return out, there, nil
}

// measureAbove is how large a tablet must be to measure itself: it is to know where to be
// split by the time it is twice that.
func (w *work) measureAbove() uint64 { return max(w.cfg.MaxBytes/2, 1) }

// tablet is the status of the tablet that holds the position.
func (w *work) tablet(ctx context.Context, at wire.Position) (*pb.StatusResponse, error) {
	asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	req := &pb.StatusRequest{MeasureAbove: w.measureAbove()}
	resp, d, err := w.cfg.Client.Send(asked, at, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: req}})
	if err != nil {
		return nil, err
	}
	s := resp.GetStatus()
	if s == nil || !wire.Holds(s.Tablet, at) {
		return nil, fmt.Errorf("splitter: tablet %d has just split", d.GetTabletId())
	}
	return s, nil
}

// tablets is the status of all tablets of user tables, in range order.
func (w *work) tablets(ctx context.Context) ([]*pb.StatusResponse, error) {
	var out []*pb.StatusResponse
	for at := (wire.Position{Table: mvcc.FirstUserTable}); ; {
		s, err := w.tablet(ctx, at)
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
