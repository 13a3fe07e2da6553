package backup

import (
	"context"
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Writes of committed records into marked tables, by restores and loads. The mark, in the table's
// record in meta, names the source and the timestamp of the restore. Clients cannot open a table
// while it has the mark.

// recordWriter writes records into tables under one mark. Workers share it.
type recordWriter struct {
	*work
	mark *pb.RestoreMark
}

// splitsAtOnce is the number of tablets created by one request, so that it completes within its
// timeout.
const splitsAtOnce = 64

// Limits of one request with records.
const (
	batchRecords = 2048
	batchBytes   = 512 << 10
)

// table requests the start or the end of a table's restore.
func (w *recordWriter) table(ctx context.Context,
	req *pb.RestoreTableRequest) (out *pb.RestoreTableResponse, err error) {
	req.Mark = w.mark
	err = w.persist(ctx, func() (bool, error) {
		out, err = w.client.Admin().RestoreTable(ctx, req)
		return false, err
	})
	if err != nil {
		err = coded.Errorf("", "backup: restore table %q: %w", req.Name, err)
	}
	return out, err
}

// markTable marks a table, which must be empty or have the same mark, and splits it at the keys. It
// creates a missing table with the expiry. It returns the table's id.
func (w *recordWriter) markTable(ctx context.Context, name string, keys [][]byte,
	expiry *pb.TableExpiry) (id uint32, err error) {
	// In requests of up to splitsAtOnce keys. The last request has none and makes the tablets
	// reject reads of timestamps before that request.
	for last := false; !last; {
		n := min(len(keys), splitsAtOnce)
		last = n == 0
		answer, err := w.table(ctx, &pb.RestoreTableRequest{Name: name, SplitKeys: keys[:n], Expiry: expiry})
		if err != nil {
			return 0, err
		}
		id, keys = answer.TableId, keys[n:]
	}
	return id, nil
}

// finishTable removes the mark: clients can open the table.
func (w *recordWriter) finishTable(ctx context.Context, name string) error {
	_, err := w.table(ctx, &pb.RestoreTableRequest{Name: name, Finish: true})
	return err
}

// last returns, of the rows' cells that have a value now, the last in the order of cells, or nil.
func (w *recordWriter) last(ctx context.Context, rows mvcc.Span) (cell *mvcc.ReadCell, err error) {
	now, err := w.client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	done := errors.New("found")
	err = w.scan(ctx, txn.RecordScan{Span: rows, At: now, Reverse: true, Limit: 1},
		func(c *mvcc.ReadCell) error {
			cell = c
			return done
		})
	if cell != nil {
		err = nil
	}
	return cell, err
}

// writeRange writes the records that each yields, which must be those of the rows in the order of
// cells, and continues behind the last existing cell. That cell marks the progress of an earlier
// run only if it is a restored one. Another client may have written a newer cell between the
// first check of the table and its mark; after the mark the tablets reject such writes. No range
// is started before the mark, so all of those cells are found here, as ErrNotEmpty.
func (w *recordWriter) writeRange(ctx context.Context, name string, rows mvcc.Span,
	each func(fn func(*mvcc.ReadCell) error) error) error {
	last, err := w.last(ctx, rows)
	switch {
	case err != nil:
		return err
	case last != nil && uint64(last.CommitTS) > w.mark.At:
		return coded.Errorf("", "%w: %q: another program wrote row %q at %d during the restore: stop that program, drop the table, and restore it again",
			ErrNotEmpty, name, last.Cell.Row, last.CommitTS)
	}
	var batch []mvcc.RestoredCell
	var passed, bytes int64
	flush := func() error {
		if err := w.throttle(ctx, bytes); err != nil {
			return err
		}
		if err := w.send(ctx, name, batch); err != nil {
			return err
		}
		w.count(0, int64(len(batch))+passed, bytes)
		batch, bytes, passed = batch[:0], 0, 0
		return nil
	}
	err = each(func(c *mvcc.ReadCell) error {
		if last != nil {
			last.Cell.Table = c.Cell.Table // files have the table's id in the backup's cluster
			if c.Cell.Compare(last.Cell) <= 0 {
				passed++
				return nil
			}
		}
		size := recordBytes(c)
		if len(batch) > 0 && (len(batch) == batchRecords || bytes+size > batchBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		batch = append(batch, mvcc.RestoredCell{
			Cell: c.Cell, StartTS: c.StartTS, CommitTS: c.CommitTS, Value: c.Value,
		})
		bytes += size
		return nil
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	w.count(1, 0, 0)
	return nil
}

// send writes one batch.
func (w *recordWriter) send(ctx context.Context, name string, batch []mvcc.RestoredCell) error {
	if len(batch) == 0 {
		return nil
	}
	cells := wire.RestorePB(batch)
	err := w.persist(ctx, func() (bool, error) {
		_, err := w.client.Admin().RestoreCells(ctx, &pb.RestoreCellsRequest{
			Name: name, Mark: w.mark, Cells: cells,
		})
		return false, err
	})
	if err != nil {
		return coded.Errorf("", "backup: restore table %q: %w", name, err)
	}
	return nil
}
