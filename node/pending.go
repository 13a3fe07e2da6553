package node

import (
	"context"
	"maps"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// pendingPage is the maximum number of timers, or of notifications of one observer, in an answer.
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

// PendingWeak implements admin.Node. A row that several observers have yet to see is listed once.
func (n *adminNode) PendingWeak(ctx context.Context, column mvcc.ObservedColumn,
	from string) (out []*pb.PendingNotification, after string, err error) {
	catalogue, err := n.client.Catalogue(ctx)
	if err != nil {
		return nil, "", err
	}
	due, cut := map[string]int64{}, "" // rows after cut may be incomplete
	for _, o := range catalogue.GetObservers() {
		if wire.ColumnOf(o) != column || o.Retired {
			continue
		}
		listed, row := 0, ""
		for e, err := range n.client.WalkFrom(ctx, mvcc.GroupNotify, wire.NotifyColumn(o), from) {
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
