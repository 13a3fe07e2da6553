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

// notifyBatch is the number of cells notified by one request.
const notifyBatch = 512

// notify marks every observed cell for each observer whose last run started before its commit. It may
// be repeated: cells whose observer has run since are skipped.
func (r *restoreRun) notify(ctx context.Context) error {
	catalogue, err := r.client.Catalogue(ctx)
	if err != nil {
		return err
	}
	for _, t := range r.tables {
		observed := map[string][]*pb.ObserverInfo{}
		for _, o := range catalogue.GetObservers() {
			if o.Table == t.id && !o.Weak && !o.Retired {
				observed[string(o.Column)] = append(observed[string(o.Column)], o)
			}
		}
		if len(observed) == 0 {
			continue
		}
		if err := r.notifyTable(ctx, mvcc.TableID(t.id), observed); err != nil {
			return err
		}
	}
	return nil
}

// notifyTable marks the dirty cells of one table, as of now.
func (r *restoreRun) notifyTable(ctx context.Context, table mvcc.TableID,
	observed map[string][]*pb.ObserverInfo) error {
	now, err := r.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = now.Close() }()
	row := dirtyRow{observed: observed}
	var dirty []mvcc.Cell
	flush := func() error {
		if len(dirty) == 0 {
			return nil
		}
		err := r.persist(ctx, func() (bool, error) { return false, r.client.Replay(ctx, 0, dirty) })
		r.result.Notified += int64(len(dirty))
		dirty = dirty[:0]
		return err
	}
	err = r.scan(ctx, txn.RecordScan{Span: mvcc.Span{Table: table}, At: now.Timestamp()},
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
		return err
	}
	dirty = row.end(dirty)
	return flush()
}

// dirtyRow is the state needed to find dirty cells of one row.
type dirtyRow struct {
	observed map[string][]*pb.ObserverInfo // by column
	name     string
	cells    []mvcc.ReadCell           // cells of observed columns
	acks     map[string]mvcc.Timestamp // start of its last run by observer: the start timestamp of its record
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

// end appends the notify cells of the row's dirty cells (§2.4's test, for each observer) and
// resets d for the next row.
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
