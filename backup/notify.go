package backup

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file has observers run, if that is wanted, for changes that they had not seen at the
// timestamp that was restored. Restored cells notify nobody by themselves.

// notifyBatch is how many cells one request notifies.
const notifyBatch = 512

// notify marks every observed cell that has been committed later than the last run for it
// began. It may be repeated: a cell whose observer has run meanwhile is left alone.
func (r *restoring) notify(ctx context.Context) error {
	catalogue, err := r.client.Catalogue(ctx)
	if err != nil {
		return err
	}
	for _, t := range r.tables {
		observed := map[string]string{} // the observer of a column
		for _, o := range catalogue.GetObservers() {
			if o.Table == t.id && !o.Weak && !o.Retired {
				observed[string(o.Column)] = o.Name
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
func (r *restoring) notifyTable(ctx context.Context, table mvcc.TableID,
	observed map[string]string) error {
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

// dirtyRow is what matters of one row.
type dirtyRow struct {
	observed map[string]string
	name     string
	cells    []mvcc.ReadCell           // of observed columns
	acks     map[string]mvcc.Timestamp // by observer: the start of its last run, which is when its record began
}

func (d *dirtyRow) add(c *mvcc.ReadCell) {
	if c.Cell.Class == mvcc.ClassAck {
		if d.acks == nil {
			d.acks = map[string]mvcc.Timestamp{}
		}
		d.acks[c.Cell.Column] = c.StartTS
	} else if d.observed[c.Cell.Column] != "" {
		d.cells = append(d.cells, mvcc.ReadCell{Cell: c.Cell, CommitTS: c.CommitTS})
	}
}

// end appends the row's dirty cells and makes room for the next row (§2.4's test).
func (d *dirtyRow) end(dirty []mvcc.Cell) []mvcc.Cell {
	for _, c := range d.cells {
		if c.CommitTS > d.acks[d.observed[c.Cell.Column]] {
			dirty = append(dirty, c.Cell)
		}
	}
	d.cells = d.cells[:0]
	clear(d.acks)
	return dirty
}
