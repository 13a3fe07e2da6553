package backfill

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// fill does one step of a back-fill: it marks a page of rows and stores that.
func (w *worker) fill(ctx context.Context, o *pb.ObserverInfo, b *pb.Backfill) progress {
	asked, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	waiting, err := w.cfg.Waiting(asked, o.Name)
	if err != nil {
		return w.fillFailed(ctx, b, err)
	}
	if waiting >= uint64(w.cfg.MaxWaiting) {
		return waits
	}
	// The page's time is the turn's: a column with few values may take long to find one.
	p, err := w.read(ctx, o, b, min(w.cfg.Page, w.cfg.MaxWaiting-int(waiting)))
	if err != nil {
		return w.fillFailed(ctx, b, err)
	}
	after := proto.CloneOf(b)
	after.Rows, after.NextRow, after.Done = b.Rows+uint64(len(p.cells)), wire.Bytes(p.next), p.last
	marking, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if err := w.cfg.Client.Replay(marking, mvcc.Timestamp(b.Ts), p.cells); err != nil {
		return w.fillFailed(ctx, b, err)
	}
	return w.save(marking, after)
}

// save stores a record and says how the back-fill goes on.
func (w *worker) save(ctx context.Context, b *pb.Backfill) progress {
	goesOn, err := w.cfg.Meta.SaveBackfill(ctx, b)
	var refused *txn.ServerError
	switch {
	case errors.As(err, &refused): // the observer is gone, and the record with it
		return ended
	case err != nil:
		return w.fillFailed(ctx, b, err)
	case !goesOn:
		w.cfg.Logger.Info("backfill: ended", "observer", b.Name, "rows", b.Rows, "done", b.Done, "error", b.Error)
		return ended
	}
	return more
}

// fillFailed ends the back-fill, with the error in its record, if trying again cannot help.
func (w *worker) fillFailed(ctx context.Context, b *pb.Backfill, err error) progress {
	if ctx.Err() != nil {
		return failure
	}
	permanent := false
	for _, target := range []error{txn.ErrInvalid, txn.ErrTooLarge, txn.ErrNoTable, txn.ErrPermission, txn.ErrNotifyOnly} {
		permanent = permanent || errors.Is(err, target)
	}
	if !permanent {
		w.cfg.Logger.Warn("backfill: step failed; trying again", "observer", b.Name, "error", err)
		return failure
	}
	after := proto.CloneOf(b)
	after.Error = err.Error()
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if _, err := w.cfg.Meta.SaveBackfill(ctx, after); err != nil {
		return failure
	}
	w.cfg.Logger.Error("backfill: ended by an error", "observer", b.Name, "error", err)
	return ended
}

// page is the cells of one step.
type page struct {
	cells []mvcc.Cell // to be marked
	next  string      // row to go on with
	last  bool        // there are no more
}

// read reads up to limit rows from where the back-fill is.
func (w *worker) read(ctx context.Context, o *pb.ObserverInfo, b *pb.Backfill, limit int) (page, error) {
	s, err := w.cfg.Client.Snapshot(ctx)
	if err != nil {
		return page{}, err
	}
	defer func() { _ = s.Close() }()
	spec := txn.ScanSpec{Table: o.TableName, From: wire.String(b.NextRow), Limit: limit}
	if !o.Weak {
		spec.Columns = []string{wire.String(o.Column)}
	}
	p := page{next: wire.String(b.NextRow)}
	rows, row := 0, ""
	for c, err := range s.Scan(ctx, spec) {
		switch {
		case err != nil:
			return page{}, err
		case c.Cell.Table != mvcc.TableID(o.Table):
			return page{}, fmt.Errorf("%w: table %q is another one by now", txn.ErrNoTable, o.TableName)
		case rows > 0 && c.Cell.Row == row:
			continue // another cell of the row, where columns are not chosen
		}
		rows, row = rows+1, c.Cell.Row
		p.next = row + "\x00"
		// What has changed since the back-fill began has a notification of its own.
		if !o.Weak && c.CommitTS > mvcc.Timestamp(b.Ts) {
			continue
		}
		p.cells = append(p.cells, mvcc.Cell{Table: c.Cell.Table, Row: row, Column: wire.String(o.Column)})
	}
	p.last = rows < limit
	return p, nil
}
