package backup

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Optional notification of observers about restored changes that they had not processed at the
// restored timestamp. Restoring cells alone notifies no observer.

// notifyBatch is the number of notify cells after which a request is sent, at the end of a row.
const notifyBatch = 512

// notify marks, in all tables of the restore, the observed cells that their observers have not
// processed.
func (r *restoreRun) notify(ctx context.Context) error {
	for _, t := range r.tables {
		n, err := r.notifyTable(ctx, t.id)
		r.result.Notified += n
		if err != nil {
			return err
		}
	}
	return nil
}

// notifyTable marks every observed cell of a table for each strong observer whose last run started
// before the cell's commit, as of now, and returns the number of marks, one for each cell and
// observer. It may be repeated: cells whose observer has run since are skipped.
func (w *recordWriter) notifyTable(ctx context.Context, table uint32) (notified int64, err error) {
	catalogue, err := w.client.Catalogue(ctx)
	if err != nil {
		return 0, err
	}
	observed := map[string][]*pb.ObserverInfo{}
	for _, o := range catalogue.GetObservers() {
		if o.Table == table && !o.Weak && !o.Retired {
			observed[string(o.Column)] = append(observed[string(o.Column)], o)
		}
	}
	if len(observed) == 0 {
		return 0, nil
	}
	now, err := w.client.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = now.Close() }()
	row := dirtyRow{observed: observed}
	var dirty []mvcc.Cell
	flush := func() error {
		if len(dirty) == 0 {
			return nil
		}
		err := w.persist(ctx, func() (bool, error) { return false, w.client.Replay(ctx, 0, dirty) })
		if err == nil {
			notified += int64(len(dirty))
		}
		dirty = dirty[:0]
		return err
	}
	err = w.scan(ctx, txn.RecordScan{Span: mvcc.Span{Table: mvcc.TableID(table)}, At: now.Timestamp()},
		func(c *mvcc.ReadCell) error {
			if c.Cell.Row != row.name {
				dirty = row.end(dirty)
				row.name = c.Cell.Row
				if len(dirty) >= notifyBatch {
					if err := flush(); err != nil {
						return err
					}
				}
			}
			row.add(c)
			return nil
		})
	if err != nil {
		return notified, err
	}
	dirty = row.end(dirty)
	err = flush()
	return notified, err
}

// dirtyRow is the state needed to find dirty cells of one row.
type dirtyRow struct {
	observed map[string][]*pb.ObserverInfo // by column
	name     string
	cells    []mvcc.ReadCell           // cells of observed columns
	acks     map[string]mvcc.Timestamp // by observer: start timestamp of its last run
}

func (d *dirtyRow) add(c *mvcc.ReadCell) {
	if c.Cell.Class == mvcc.ClassAck {
		if d.acks == nil {
			d.acks = map[string]mvcc.Timestamp{}
		}
		d.acks[c.Cell.Column] = c.StartTS
	} else if d.observed[c.Cell.Column] != nil {
		d.cells = append(d.cells, mvcc.ReadCell{Cell: c.Cell, CommitTS: c.CommitTS})
	}
}

// end appends the notify cells of the row's dirty cells, those committed after the start of an
// observer's last run, and resets d for the next row.
func (d *dirtyRow) end(dirty []mvcc.Cell) []mvcc.Cell {
	for _, c := range d.cells {
		for _, o := range d.observed[c.Cell.Column] {
			if c.CommitTS > d.acks[o.Name] {
				dirty = append(dirty, wire.NotifyColumn(o).Cell(c.Cell.Row))
			}
		}
	}
	d.cells = d.cells[:0]
	clear(d.acks)
	return dirty
}
