package node

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// pendingPage is the number of timers or notifications in one answer.
const pendingPage = 1024

// SetTimers implements admin.Node.
func (n *adminNode) SetTimers(ctx context.Context, timers []mvcc.Timer) error {
	return n.client.SetTimers(ctx, timers)
}

// PendingTimers implements admin.Node.
func (n *adminNode) PendingTimers(ctx context.Context, at mvcc.Timestamp,
	from string) (out []*pb.PendingNotification, after string, err error) {
	scan := txn.RecordScan{Span: mvcc.Span{Table: mvcc.TimerTable, Start: from}, At: at, Limit: pendingPage}
	for r, err := range n.client.Records(ctx, scan) {
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

// PendingWeak implements admin.Node.
func (n *adminNode) PendingWeak(ctx context.Context, column mvcc.ObservedColumn,
	from string) (out []*pb.PendingNotification, after string, err error) {
	for e, err := range n.client.WalkFrom(ctx, mvcc.GroupNotify,
		wire.Position{Table: column.Table, Row: from}, column.Column) {
		if err != nil {
			return nil, "", err
		}
		cell := wire.Cell(e.GetCell())
		out = append(out, pendingPB(cell, mvcc.Timestamp(e.GetNotify().GetTs()).Millis()))
		if after = cell.Row; len(out) == pendingPage {
			return out, after, nil
		}
	}
	return out, "", nil
}

func pendingPB(c mvcc.Cell, due int64) *pb.PendingNotification {
	return &pb.PendingNotification{
		Table: uint32(c.Table), Row: wire.Bytes(c.Row), Column: wire.Bytes(c.Column), DueUnixMs: due,
	}
}
