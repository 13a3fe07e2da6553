package backup

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Loads of sorted rows into an empty table (docs/adr/0074). All cells are committed records of one
// timestamp, written as a restore writes them: clients see all of them or none.

// ErrNotSorted is returned for rows that are out of order, or occur twice.
var ErrNotSorted = errors.New("backup: rows are not sorted")

// LoadOptions configure a load.
type LoadOptions struct {
	Options
	Table string // an existing table without rows
	// Source identifies the rows, and names them in messages. A load with the same source
	// continues an interrupted one, so it must have the same parts.
	Source string
	Parts  []LoadPart // in the order of their rows
	// Notify marks the observed cells once all rows are written, so that their observers run.
	Notify bool
}

// LoadPart yields the rows of one range. The table gets a tablet for each part.
type LoadPart struct {
	Start string // the part's first row; ignored in the first part
	// Rows calls fn with the cells of each row, in the order of columns. Rows must ascend. It is
	// called once, on its own goroutine, and returns fn's error.
	Rows func(ctx context.Context, fn func(row string, cells []LoadCell) error) error
}

// LoadCell is a column of a row and its value.
type LoadCell struct {
	Column string
	Value  []byte
}

// Loaded is the result of Load.
type Loaded struct {
	At       uint64 // commit timestamp of all cells
	Before   bool   // an earlier run has completed the load; this run wrote no cell
	Notified int64
}

// Load writes sorted rows into an empty table, and resumes an interrupted load. Until it is
// complete the table cannot be opened. It returns ErrTable for a missing table, ErrNotEmpty for one
// with rows that are not of this load, or that is being restored from another source, and
// ErrNotSorted.
func Load(ctx context.Context, c *txn.Client, o LoadOptions) (*Loaded, error) {
	for i := 1; i < len(o.Parts); i++ {
		if o.Parts[i].Start <= o.Parts[i-1].Start {
			return nil, coded.Errorf("", "%w: row %q, the first of a part, follows row %q",
				ErrNotSorted, o.Parts[i].Start, o.Parts[i-1].Start)
		}
	}
	l := &loadRun{recordWriter: recordWriter{work: newWork(c, nil, o.Options)}, options: o}
	table, before, err := l.find(ctx)
	if err != nil {
		return nil, err
	}
	out := &Loaded{At: l.mark.At, Before: before}
	stop := l.reportJob(ctx, &pb.Job{Kind: "restore", Subject: "from " + o.Source, Tables: []string{o.Table}})
	if !before {
		err = l.write(ctx)
	}
	if err == nil && o.Notify {
		out.Notified, err = l.notifyTable(ctx, table)
	}
	stop(err)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// loadRun is a load in progress.
type loadRun struct {
	recordWriter
	options LoadOptions
}

// find finds the table, and chooses the mark: that of an interrupted load of the same source, or a
// new one if the table is empty. before reports that an earlier run has completed the load.
func (l *loadRun) find(ctx context.Context) (table uint32, before bool, err error) {
	// The timestamp precedes the check: what another client commits after the check is newer, so
	// writeRange finds it.
	at, err := l.client.Timestamp(ctx)
	if err != nil {
		return 0, false, err
	}
	l.mark = &pb.RestoreMark{Source: l.options.Source, At: uint64(at)}
	tables, err := l.client.Tables(ctx)
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(tables, func(t *pb.Table) bool { return t.Name == l.options.Table })
	if i < 0 {
		return 0, false, coded.Errorf("", "%w %q does not exist in the cluster", ErrTable, l.options.Table)
	}
	t := tables[i]
	if t.Restoring != nil {
		if l.mark = t.Restoring; l.mark.Source == l.options.Source {
			return t.Id, false, nil
		}
		return 0, false, coded.Errorf("", "%w: %q is being restored from %s: repeat that restore or load, or drop the table",
			ErrNotEmpty, l.options.Table, l.mark.Source)
	}
	last, err := l.last(ctx, mvcc.Span{Table: mvcc.TableID(t.Id)})
	switch {
	case err != nil:
		return 0, false, err
	case last == nil:
		return t.Id, false, nil
	case t.Restored.GetSource() == l.options.Source:
		l.mark = t.Restored
		return t.Id, true, nil
	}
	return 0, false, coded.Errorf("", "%w: %q", ErrNotEmpty, l.options.Table)
}

// write marks the table, writes all parts and removes the mark.
func (l *loadRun) write(ctx context.Context) error {
	parts := l.options.Parts
	var keys [][]byte
	for i := 1; i < len(parts); i++ {
		keys = append(keys, []byte(parts[i].Start))
	}
	id, err := l.markTable(ctx, l.options.Table, keys, nil)
	if err != nil {
		return err
	}
	l.plans(len(parts))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(l.Workers)
	for i := range parts {
		span := mvcc.Span{Table: mvcc.TableID(id)}
		if i > 0 {
			span.Start = parts[i].Start
		}
		if i+1 < len(parts) {
			span.End, span.HasEnd = parts[i+1].Start, true
		}
		group.Go(func() error {
			return l.writeRange(within, l.options.Table, span, func(fn func(*mvcc.ReadCell) error) error {
				return l.cells(within, &parts[i], span, fn)
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return l.finishTable(ctx, l.options.Table)
}

// cells yields the records of a part's rows, and checks their order.
func (l *loadRun) cells(ctx context.Context, part *LoadPart, rows mvcc.Span, fn func(*mvcc.ReadCell) error) error {
	last, first := "", true
	at := mvcc.Timestamp(l.mark.At)
	return part.Rows(ctx, func(row string, cells []LoadCell) error {
		switch {
		case !first && row <= last, first && row < rows.Start:
			return coded.Errorf("", "%w: row %q follows row %q", ErrNotSorted, row, max(last, rows.Start))
		case rows.HasEnd && row >= rows.End:
			return coded.Errorf("", "%w: row %q precedes row %q", ErrNotSorted, row, rows.End)
		}
		last, first = row, false
		for i := range cells {
			// No transaction has at-1 as its start timestamp and writes here: the tablets refuse
			// those that began before the mark.
			err := fn(&mvcc.ReadCell{
				Cell:    mvcc.Cell{Table: rows.Table, Row: row, Column: cells[i].Column},
				StartTS: at - 1, CommitTS: at, Value: cells[i].Value,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
