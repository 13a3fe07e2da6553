package admin

import (
	"context"
	"maps"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
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
		out.Pending, from, err = s.pendingWeak(ctx, column, from)
	case s.cfg.Gate.Has(version.Timers): // without this feature there are no timers
		out.Pending, from, err = s.pendingTimers(ctx, mvcc.Timestamp(req.At), from)
	default:
		from = ""
	}
	out.After = []byte(from)
	return out, err
}

// pendingPage is the maximum number of timers, or of notifications of one observer, in an answer.
const pendingPage = 1024

// pendingTimers returns timers as of the timestamp, starting at the row, and the last row of the
// page, empty at the end.
func (s *Service) pendingTimers(ctx context.Context, at mvcc.Timestamp,
	from string) (out []*pb.PendingNotification, after string, err error) {
	scan := txn.RecordScan{Span: mvcc.Span{Table: mvcc.TimerTable, Start: from}, At: at, Limit: pendingPage}
	for r, err := range s.cfg.Client.Records(ctx, scan) {
		if err != nil {
			return nil, "", err
		}
		after = r.Cell.Row
		timer, ok := mvcc.TimerOf(r.Cell, r.Value)
		if !ok {
			continue
		}
		out = append(out, pendingPB(timer.Target, timer.Due))
		if len(out) == pendingPage {
			return out, after, nil
		}
	}
	return out, "", nil
}

// pendingWeak returns the pending weak notifications of a column, as pendingTimers does timers. A
// row that several observers have yet to see is listed once.
func (s *Service) pendingWeak(ctx context.Context, column mvcc.ObservedColumn,
	from string) (out []*pb.PendingNotification, after string, err error) {
	catalogue, err := s.cfg.Client.Catalogue(ctx)
	if err != nil {
		return nil, "", err
	}
	due, cut := map[string]int64{}, "" // after row cut, the end of a full page, rows may be missing
	for _, o := range catalogue.GetObservers() {
		if wire.ColumnOf(o) != column || o.Retired {
			continue
		}
		listed, row := 0, ""
		for e, err := range s.cfg.Client.WalkFrom(ctx, mvcc.GroupNotify, wire.NotifyColumn(o), from) {
			if err != nil {
				return nil, "", err
			}
			if listed == pendingPage {
				if cut == "" || row < cut {
					cut = row
				}
				break
			}
			row = wire.String(e.GetCell().GetRow())
			changed := mvcc.Timestamp(e.GetNotify().GetTs()).Millis()
			if first, there := due[row]; !there || changed < first {
				due[row] = changed
			}
			listed++
		}
	}
	for _, row := range slices.Sorted(maps.Keys(due)) {
		if cut != "" && row > cut {
			break
		}
		out = append(out, pendingPB(column.Cell(row), due[row]))
	}
	return out, cut, nil
}

func pendingPB(c mvcc.Cell, due int64) *pb.PendingNotification {
	return &pb.PendingNotification{
		Table: uint32(c.Table), Row: wire.Bytes(c.Row), Column: wire.Bytes(c.Column), DueUnixMs: due,
	}
}

// restorePending sets the timers of a table being restored. Those that are due fire once the
// table can be opened.
func (s *Service) restorePending(ctx context.Context, id mvcc.TableID,
	pending []*pb.PendingNotification) error {
	if err := s.cfg.Gate.Check(version.Timers); err != nil {
		return refuse("%v", err)
	}
	now, err := s.cfg.Client.Timestamp(ctx)
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
	return s.cfg.Client.SetTimers(ctx, timers)
}
