package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Steps of back-fills, on the actor's goroutine. A page is read, marked and recorded before the
// step returns, so nothing is in flight between steps.

// fill does one step of a back-fill: it reads a page of rows, notifies the observer of
// them, and then stores the progress, in this order: a crash repeats a page and never skips one.
func (w *worker) fill(ctx context.Context, o *pb.ObserverInfo, b *pb.Backfill) progress {
	countCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	waiting, err := w.cfg.Waiting(countCtx, o.Name)
	if err != nil {
		return w.fillFailed(ctx, b, err)
	}
	if waiting >= uint64(maxWaiting) {
		return progressWaiting
	}
	// No timeout for the page: in a sparse column the next value may be far away.
	p, err := w.read(ctx, o, b, min(w.cfg.Page, maxWaiting-int(waiting)))
	if err != nil {
		return w.fillFailed(ctx, b, err)
	}
	after := proto.CloneOf(b)
	after.Rows, after.NextRow, after.Done = b.Rows+uint64(len(p.cells)), wire.Bytes(p.next), p.last
	if b.BelowVersion > 0 {
		after.Examined += uint64(p.rows)
	}
	markCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := w.cfg.Client.Replay(markCtx, mvcc.Timestamp(b.Ts), p.cells); err != nil {
		return w.fillFailed(ctx, b, err)
	}
	return w.save(markCtx, after)
}

// save stores a record and returns how the back-fill continues.
func (w *worker) save(ctx context.Context, b *pb.Backfill) progress {
	continues, err := w.cfg.Meta.SaveBackfill(ctx, b)
	var refused *txn.ServerError
	switch {
	case errors.As(err, &refused): // the observer and its back-fill's record were removed
		return progressDone
	case err != nil:
		return w.fillFailed(ctx, b, err)
	case !continues:
		w.cfg.Logger.Info("backfill: ended",
			"observer", b.Name, "rows", b.Rows, "done", b.Done, "error", b.Error)
		return progressDone
	}
	return progressMore
}

// permanentErrors are errors that a retry cannot avoid.
var permanentErrors = []error{
	txn.ErrInvalid, txn.ErrTooLarge, txn.ErrNoTable, txn.ErrPermission, txn.ErrNotifyOnly,
}

// fillFailed handles an error of a step. A permanent error ends the back-fill and is stored
// in its record; after any other the step is tried again.
func (w *worker) fillFailed(ctx context.Context, b *pb.Backfill, err error) progress {
	if ctx.Err() != nil {
		return progressFailed
	}
	if !slices.ContainsFunc(permanentErrors, func(target error) bool { return errors.Is(err, target) }) {
		w.cfg.Logger.Warn("backfill: step failed; trying again", "observer", b.Name, "error", err)
		return progressFailed
	}
	after := proto.CloneOf(b)
	after.Error = err.Error()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := w.cfg.Meta.SaveBackfill(ctx, after); err != nil {
		return progressFailed
	}
	w.cfg.Logger.Error("backfill: ended by an error", "observer", b.Name, "error", err)
	return progressDone
}

// page is the cells of one step.
type page struct {
	cells []mvcc.Cell // the observer's notify cells of the rows to be marked
	rows  int         // rows that were read
	next  string      // the row at which the next page begins
	last  bool        // there are no more rows
}

// read reads up to limit rows, beginning at b.NextRow.
func (w *worker) read(ctx context.Context, o *pb.ObserverInfo, b *pb.Backfill,
	limit int) (page, error) {
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
	row := ""
	for c, err := range s.Scan(ctx, spec) {
		switch {
		case err != nil:
			return page{}, err
		case c.Cell.Table != mvcc.TableID(o.Table):
			return page{}, fmt.Errorf("%w: table %q was dropped and created again", txn.ErrNoTable,
				o.TableName)
		case p.rows > 0 && c.Cell.Row == row:
			continue // a weak observer's scan returns every column of a row
		}
		p.rows, row = p.rows+1, c.Cell.Row
		p.next = row + "\x00"
		// A value written since the back-fill began has a notification of its own.
		if !o.Weak && c.CommitTS > mvcc.Timestamp(b.Ts) {
			continue
		}
		p.cells = append(p.cells, wire.NotifyColumn(o).Cell(row))
	}
	p.last = p.rows < limit
	if b.BelowVersion > 0 {
		p.cells, err = below(ctx, s, o.Name, b.BelowVersion, p.cells)
	}
	return p, err
}

// below returns the notify cells of the rows whose last run was of a version below v, or whose
// acknowledgment is malformed. Rows without an acknowledgment have never been run for, and are left
// out.
func below(ctx context.Context, s *txn.Snapshot, observer string, v uint32,
	cells []mvcc.Cell) ([]mvcc.Cell, error) {
	acks := make([]mvcc.Cell, len(cells))
	for i, c := range cells {
		acks[i] = notify.AckCell(c, observer)
	}
	records, err := s.GetRecords(ctx, acks...)
	if err != nil {
		return nil, err
	}
	var out []mvcc.Cell
	for i, ack := range records {
		if !ack.Found {
			continue
		}
		// Mark a row with a malformed acknowledgment too: the run that follows reports it.
		if _, version, err := notify.DecodeAck(ack.Value); err != nil || version < v {
			out = append(out, cells[i])
		}
	}
	return out, nil
}
