package admin

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// The parts of a backup other than cells: timers and pending weak notifications.

// PendingNotifications implements pb.AdminServer.
func (s *Service) PendingNotifications(ctx context.Context,
	req *pb.PendingNotificationsRequest) (*pb.PendingNotificationsResponse, error) {
	out, from, err := &pb.PendingNotificationsResponse{}, "", error(nil)
	if len(req.GetAfter()) > 0 {
		from = string(req.After) + "\x00"
	}
	switch {
	case req.GetAt() == 0:
		column := mvcc.ObservedColumn{Table: mvcc.TableID(req.Table), Column: wire.String(req.Column)}
		out.Pending, from, err = s.cfg.Node.PendingWeak(ctx, column, from)
	case s.cfg.Gate.Has(version.Timers): // without it there are none
		out.Pending, from, err = s.cfg.Node.PendingTimers(ctx, mvcc.Timestamp(req.At), from)
	default:
		from = ""
	}
	out.After = []byte(from)
	return out, err
}

// restorePending sets the timers of a table being restored. Those that are due fire once the
// table can be opened.
func (s *Service) restorePending(ctx context.Context, id mvcc.TableID,
	pending []*pb.PendingNotification) error {
	if err := s.cfg.Gate.Check(version.Timers); err != nil {
		return refuse("%v", err)
	}
	now, err := s.cfg.Node.Timestamp(ctx)
	if err != nil {
		return err
	}
	timers := make([]mvcc.Timer, len(pending))
	for i, p := range pending {
		timers[i] = mvcc.Timer{
			Target: mvcc.Cell{Table: id, Row: wire.String(p.GetRow()), Column: wire.String(p.GetColumn())},
			Due:    max(p.GetDueUnixMs(), now.Millis()),
		}
	}
	return s.cfg.Node.SetTimers(ctx, timers)
}
