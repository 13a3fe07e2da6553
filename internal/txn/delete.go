package txn

import (
	"context"
	"slices"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Deletion of ranges, one bounded transaction at a time. It reads keys without values, keeps no
// state in the client, and runs on the caller's goroutine.

// Bounds of one transaction of a deletion.
const (
	maxDeleteCells = 1000
	maxDeleteBytes = 1 << 20 // of rows and columns, plus deleteCellCost per cell
	deleteCellCost = 64
	// maxDeleteTime bounds the search for cells, so that the transaction's snapshot stays within
	// the history, however few of many cells are to be deleted.
	maxDeleteTime = 2 * time.Second
)

// Deletion selects cells to delete. Its fields may not change while it is in use.
type Deletion struct {
	ScanSpec              // without Reverse; Limit is a number of rows with deleted cells
	ID       mvcc.TableID // if not 0, the table, instead of the one that now has the name Table
	Except   []string     // columns to leave alone
	// Cutoff, if not nil, returns for the transaction's start timestamp the commit timestamp from
	// which on a cell is left alone.
	Cutoff func(start mvcc.Timestamp) mvcc.Timestamp
	Name   string // of the transactions
}

// Deleted is the result of one transaction of a Deletion.
type Deleted struct {
	Rows, Cells int
	Done        bool   // the search has reached the end of the range
	Next        string // unless Done: the row at which to continue
	// Oldest is the lowest commit timestamp among the cells that Cutoff has left alone. Cells of
	// columns in Except may count too. 0 means there was none.
	Oldest mvcc.Timestamp
}

// DeleteSome deletes the first cells of a range in one transaction: up to maxDeleteCells and about
// maxDeleteBytes, as far as found in maxDeleteTime, in whole rows unless a single row has more.
// After a conflict it runs again with half as many, since a smaller transaction conflicts less
// often.
//
// Cells are read and deleted in the same transaction: one that is written after the read makes
// the commit fail, and so no cell is deleted in a version that the selection did not see.
func (c *Client) DeleteSome(ctx context.Context, d Deletion) (out Deleted, err error) {
	if err := c.cfg.checkScan(d.ScanSpec); err != nil {
		return Deleted{}, err
	}
	most := 2 * maxDeleteCells
	_, err = c.Run(ctx, Options{Name: d.Name}, func(ctx context.Context, t *Txn) error {
		most = max(most/2, 1)
		found := deletionSearch{t: t, of: &d, most: most}
		if err := found.search(ctx); err != nil {
			t.fail(err)
			return err
		}
		out = found.out
		return nil
	})
	if err != nil {
		return Deleted{}, err
	}
	return out, nil
}

// deletionSearch is the search of one transaction.
type deletionSearch struct {
	t     *Txn
	of    *Deletion
	most  int // cells
	pages scanner
	bytes int
	row   []mvcc.Cell // found in the current row, deleted once the row is complete
	out   Deleted
}

// search buffers the deletions.
func (g *deletionSearch) search(ctx context.Context) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	for began := time.Now(); !g.pages.done; {
		page, err := g.pages.step(ctx)
		if err != nil {
			return err
		}
		for _, p := range page {
			if more := g.found(wire.Cell(p.Cell), mvcc.Timestamp(p.CommitTs)); !more {
				return nil
			}
		}
		// When the time is up, the next search begins with this row again, unless it is the first:
		// a search that began there again would get no further.
		row := g.pages.span.Start
		if g.pages.resume != nil {
			row = g.pages.resume.Row
		}
		if !g.pages.done && time.Since(began) >= maxDeleteTime && row != g.of.From {
			if len(g.row) > 0 && g.row[0].Row != row {
				g.endRow()
			}
			g.out.Next, g.out.Oldest = row, g.pages.oldest
			return nil
		}
	}
	if len(g.row) > 0 {
		g.endRow()
	}
	g.out.Done = g.of.Limit == 0 || g.out.Rows < g.of.Limit
	g.out.Oldest = g.pages.oldest
	return nil
}

// begin prepares the search.
func (g *deletionSearch) begin(ctx context.Context) error {
	d, c := g.of, g.t.c
	id := d.ID
	if id == 0 {
		var err error
		if id, err = c.meta.TableID(ctx, d.Table); err != nil {
			return err
		}
	}
	at, err := g.t.Start(ctx)
	if err != nil {
		return err
	}
	g.pages = scanner{
		c: c, at: at, span: mvcc.Span{Table: id, Start: d.From, End: d.Before, HasEnd: d.HasBefore},
		columns: slices.Compact(slices.Sorted(slices.Values(d.Columns))), keysOnly: true,
		wanted: g.most, trace: g.t.span.Sent(),
	}
	if d.Limit > 0 {
		g.pages.wanted = min(d.Limit, g.most)
	}
	if d.Cutoff != nil {
		g.pages.before = d.Cutoff(at)
	}
	g.pages.done = d.HasBefore && d.From >= d.Before
	return nil
}

// found handles the next cell of the range. It returns false if the transaction is full or has
// Limit rows.
func (g *deletionSearch) found(cell mvcc.Cell, written mvcc.Timestamp) bool {
	if len(g.row) > 0 && g.row[0].Row != cell.Row {
		g.endRow()
		if g.of.Limit > 0 && g.out.Rows == g.of.Limit {
			return false
		}
	}
	if slices.Contains(g.of.Except, cell.Column) {
		return true
	}
	// Nodes of earlier releases return cells of any age.
	if g.pages.before != 0 && written >= g.pages.before {
		g.pages.leftOut(written)
		return true
	}
	if g.out.Cells+len(g.row) >= g.most || g.bytes >= maxDeleteBytes {
		if g.out.Cells == 0 { // this row alone exceeds the bound
			g.flush()
		}
		g.out.Next, g.out.Oldest = cell.Row, g.pages.oldest
		return false
	}
	g.bytes += len(cell.Row) + len(cell.Column) + deleteCellCost
	g.row = append(g.row, cell)
	return true
}

// endRow deletes the cells of the current row, of which there are no more.
func (g *deletionSearch) endRow() {
	g.out.Next = g.row[0].Row + "\x00"
	g.out.Rows++
	g.flush()
}

// flush buffers the deletion of the current row's cells found so far.
func (g *deletionSearch) flush() {
	t := g.t
	t.guard.Lock()
	defer t.guard.Unlock()
	for _, cell := range g.row {
		if !t.tooLate() {
			t.put(cell, mvcc.KindDelete, nil)
		}
	}
	g.out.Cells, g.row = g.out.Cells+len(g.row), g.row[:0]
}
