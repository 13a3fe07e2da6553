package txn

import (
	"context"
	"fmt"
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Bounds of one request: entries of a page of a walk, and parked notifications that are
// replayed at once.
const (
	walkPage    = 512
	replayBatch = 512
)

// Replay makes the observers of the cells' columns run once more for them, whatever they
// have acknowledged before at; notifications that are parked count anew. at must have
// been given out by the oracle; 0 takes a fresh timestamp. It may be repeated with the
// same timestamp: a cell whose observer has run since runs no more, if it is strong.
// Errors: ErrNotifyOnly if a column is not observed; after any other some of the cells
// may have been marked.
func (c *Client) Replay(ctx context.Context, at mvcc.Timestamp, cells []mvcc.Cell) error {
	if at == 0 {
		var err error
		if at, err = c.oracle.get(ctx); err != nil {
			return err
		}
	}
	return c.eachTablet(ctx, cells, nil, func(cells, _ []mvcc.Cell) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_Notify{
			Notify: &pb.NotifyRequest{Ts: uint64(at), Cells: wire.CellsPB(cells), Replay: true},
		}}
	}, func(res *pb.MutationResult) error {
		switch res.Status {
		case pb.Status_STATUS_OK:
			return nil
		case pb.Status_STATUS_NOTIFY_ONLY:
			cell := wire.Cell(res.ConflictAt)
			return fmt.Errorf("%w: row %q column %q: nothing observes it", ErrNotifyOnly, cell.Row, cell.Column)
		default:
			return fmt.Errorf("%w: replay answered %v", ErrUnavailable, res.Status)
		}
	})
}

// ReplayParked replays every notification of the observer that is parked now, and returns
// how many that were.
func (c *Client) ReplayParked(ctx context.Context, observer string) (replayed uint64, err error) {
	catalogue, err := c.Catalogue(ctx)
	if err != nil {
		return 0, err
	}
	for _, o := range catalogue.GetObservers() {
		if o.Name == observer {
			return c.replayParked(ctx, o)
		}
	}
	return 0, Invalid("there is no observer %q", observer)
}

func (c *Client) replayParked(ctx context.Context, o *pb.ObserverInfo) (replayed uint64, err error) {
	var cells []mvcc.Cell
	flush := func() error {
		if len(cells) == 0 {
			return nil
		}
		// Fresh for each batch: above the time at which any of them was parked.
		if err := c.Replay(ctx, 0, cells); err != nil {
			return err
		}
		replayed += uint64(len(cells))
		cells = cells[:0]
		return nil
	}
	for e, err := range c.WalkColumn(ctx, mvcc.GroupNotify, mvcc.TableID(o.Table), wire.String(o.Column)) {
		if err != nil {
			return replayed, err
		}
		if e.GetNotify().GetParkedTs() == 0 {
			continue
		}
		if cells = append(cells, wire.Cell(e.Cell)); len(cells) == replayBatch {
			if err := flush(); err != nil {
				return replayed, err
			}
		}
	}
	return replayed, flush()
}

// WalkColumn yields the entries of the notify or intent group of one column, in row
// order, a page at a time. It sees no one moment: entries come and go meanwhile. An error
// ends it.
func (c *Client) WalkColumn(ctx context.Context, group mvcc.Group, table mvcc.TableID, column string) iter.Seq2[*pb.WalkEntry, error] {
	return c.WalkFrom(ctx, group, wire.Position{Table: table}, column)
}

// WalkFrom is WalkColumn that begins at a row. The lock group it walks for all columns.
func (c *Client) WalkFrom(ctx context.Context, group mvcc.Group, from wire.Position, column string) iter.Seq2[*pb.WalkEntry, error] {
	return func(yield func(*pb.WalkEntry, error) bool) {
		at, table := from, from.Table
		var last *pb.WalkEntry
		for {
			resp, d, err := c.callTablet(ctx, at, &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: &pb.WalkRequest{
				Group: uint32(group), Table: uint32(table), Column: wire.Bytes(column), FromRow: wire.Bytes(at.Row), Limit: walkPage,
				After: last.GetCell(), AfterTs: last.GetTs(),
			}}}, true)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range resp.GetWalk().GetEntries() {
				last = e
				if !yield(e, nil) {
					return
				}
			}
			if !resp.GetWalk().GetDone() && last != nil {
				at.Row = wire.String(last.Cell.GetRow())
				continue
			}
			end, bounded := wire.EndOf(d)
			if !bounded || end.Table != table {
				return
			}
			at, last = end, nil
		}
	}
}

// Observers lists the catalogue's observers with what waits for them.
func (c *Client) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	return retryAdmin(ctx, c, func() ([]*pb.ObserverState, error) { return c.transport.Observers(ctx) })
}
