package admin

import (
	"context"
	"errors"
	"math"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// Orders about observers. They are written to the catalogue in meta, which the nodes that run
// observers follow.

// ControlObserver implements pb.AdminServer. When it returns no error, every tablet and every
// dispatcher of a live node has applied the change.
func (s *Service) ControlObserver(ctx context.Context,
	req *pb.ControlObserverRequest) (*pb.ControlObserverResponse, error) {
	// The catalogue's ControlObserver returns when every tablet has applied the change.
	info, err := s.cfg.Observers.ControlObserver(ctx, req)
	if err != nil {
		return nil, err
	}
	s.cfg.Node.WakeBackfills() // to remove a retired observer's notifications
	// The change is in meta by now; an error means that a node has not confirmed it.
	if err := s.cfg.Node.ApplyCatalogue(ctx); err != nil {
		return nil, err
	}
	return &pb.ControlObserverResponse{Info: info}, nil
}

// Backfill implements pb.AdminServer. The response has no back-fill if there was none.
func (s *Service) Backfill(ctx context.Context,
	req *pb.BackfillRequest) (*pb.BackfillResponse, error) {
	var b *pb.Backfill
	var err error
	switch req.GetAction() {
	case pb.BackfillRequest_ACTION_START:
		b, err = s.startBackfill(ctx, req.GetName(), req.GetBelowVersion())
	case pb.BackfillRequest_ACTION_CANCEL:
		b, err = s.cfg.Backfills.CancelBackfill(ctx, req.GetName())
	// Without an action the record is only read.
	default:
		b, err = s.cfg.Backfills.Backfill(ctx, req.GetName())
	}
	return &pb.BackfillResponse{Backfill: b}, err
}

// ReplayParked implements pb.AdminServer. It replays the parked notifications page by page; an
// error keeps the earlier replays, and another call continues with the remaining ones.
func (s *Service) ReplayParked(ctx context.Context,
	req *pb.ReplayParkedRequest) (*pb.ReplayParkedResponse, error) {
	n, err := s.cfg.Client.ReplayParked(ctx, req.GetName(), func(uint64) {})
	switch {
	case errors.Is(err, txn.ErrInvalid):
		return nil, refuse("%v", err)
	case err != nil:
		return nil, coded.Errorf("admin", "replay failed after %d notifications: %w", n, err)
	}
	return &pb.ReplayParkedResponse{Replayed: n}, nil
}

// ReplayRow implements pb.AdminServer. It rejects a row without a parked notification of the
// observer.
func (s *Service) ReplayRow(ctx context.Context,
	req *pb.ReplayRowRequest) (*pb.ReplayRowResponse, error) {
	err := s.cfg.Client.ReplayRow(ctx, req.GetName(), wire.String(req.GetRow()))
	if errors.Is(err, txn.ErrInvalid) {
		err = refuse("%v", err)
	}
	if err != nil {
		return nil, err
	}
	return &pb.ReplayRowResponse{Replayed: 1}, nil
}

// ObserverRun implements pb.AdminServer.
func (s *Service) ObserverRun(ctx context.Context,
	req *pb.ObserverRunRequest) (*pb.ObserverRunResponse, error) {
	return &pb.ObserverRunResponse{Run: s.cfg.Node.ObserverRun(ctx, req.GetName(), wire.String(req.GetRow()))}, nil
}

// startBackfill records a back-fill and wakes the node that leads meta, which runs it.
func (s *Service) startBackfill(ctx context.Context, name string, below uint32) (*pb.Backfill, error) {
	if below > 0 {
		if err := s.checkVersions(ctx, name, below); err != nil {
			return nil, err
		}
	}
	// The back-fill leaves changes after its timestamp to their own notifications, which tablets
	// write once they know the observer.
	if err := s.cfg.Observers.Sync(ctx); err != nil {
		return nil, err
	}
	// A new timestamp is above every change that the back-fill must mark, and above every
	// existing acknowledgment.
	ts, err := s.cfg.Client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	b, err := s.cfg.Backfills.StartBackfill(ctx, name, uint64(ts), below)
	if err == nil {
		s.cfg.Node.WakeBackfills()
	}
	return b, err
}

// checkVersions rejects a replay below a version that some node's process has not reached: that process
// might run the marked rows, and would leave them to yet another replay.
func (s *Service) checkVersions(ctx context.Context, name string, below uint32) error {
	if below > math.MaxInt32 {
		return refuse("version %d is above %d, the highest of an observer", below, math.MaxInt32)
	}
	if err := s.cfg.Gate.Check(version.ObserverVersions); err != nil {
		return refuse("%v", err)
	}
	states, err := s.cfg.Node.ObserverStates(ctx)
	if err != nil {
		return err
	}
	for _, o := range states {
		if o.GetInfo().GetName() != name {
			continue
		}
		for _, v := range o.GetVersions() {
			if v.Version < below {
				return refuse("version %d of observer %q runs on node %d: start version %d or a later one on all nodes "+
					"first, or replay below version %d", v.Version, name, v.Nodes[0], below, v.Version)
			}
		}
	}
	return nil
}
