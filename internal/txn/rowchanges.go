package txn

import (
	"cmp"
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// maxRowChanges is the size, in bytes, up to which the changes of one row are sorted at once.
const maxRowChanges = 4 << 20

// rowChanges passes on the changes of a range, row by row, those of a row in the
// order of their commits. A scan of records yields each cell's newest record first, so a row is
// gathered and sorted; a row whose changes exceed maxRowChanges is read again in two steps, the
// earlier half of the time first.
type rowChanges struct {
	f    *feed
	r    *feedRange
	page []*pb.ReadCell // complete rows, not passed on yet
	size int            // of page
}

// row is the changes of one row, as far as gathered.
type row struct {
	changes        []*pb.ReadCell
	size           int
	skipped        bool // too large: only the first change is kept
	oldest, newest mvcc.Timestamp
}

// scan passes on the changes of the rows in (since, to], except the last page, which stays in
// g.page.
func (g *rowChanges) scan(ctx context.Context, span mvcc.Span, since, to mvcc.Timestamp) error {
	pages := scanner{
		c: g.f.c, at: to, span: span, columns: g.r.columns,
		records: true, since: since,
	}
	var now row
	for {
		cells, err := pages.page(ctx)
		if err != nil {
			return err
		}
		if len(cells) == 0 {
			return g.end(ctx, &now, span.Table, since, to)
		}
		for _, c := range cells {
			if len(now.changes) > 0 && string(now.changes[0].Cell.Row) != string(c.Cell.Row) {
				if err := g.end(ctx, &now, span.Table, since, to); err != nil {
					return err
				}
			}
			now.add(c, to-since > 1)
		}
	}
}

// add adds a change. If the row has become too large, and its changes can be divided by time, it
// keeps none but the first.
func (w *row) add(c *pb.ReadCell, divisible bool) {
	ts := mvcc.Timestamp(c.CommitTs)
	if len(w.changes) == 0 {
		w.oldest, w.newest = ts, ts
	}
	w.oldest, w.newest = min(w.oldest, ts), max(w.newest, ts)
	w.size += len(c.Value) + len(c.Cell.Row) + len(c.Cell.Column)
	w.skipped = w.skipped || (divisible && w.size > maxRowChanges && w.oldest < w.newest)
	if w.skipped && len(w.changes) > 0 {
		w.changes = w.changes[:1]
		return
	}
	w.changes = append(w.changes, c)
}

// end completes the row and begins the next one.
func (g *rowChanges) end(ctx context.Context, w *row, table mvcc.TableID, since, to mvcc.Timestamp) error {
	done := *w
	*w = row{}
	if done.skipped {
		name := string(done.changes[0].Cell.Row)
		span := mvcc.Span{Table: table, Start: name, End: name + "\x00", HasEnd: true}
		half := done.oldest + (done.newest-done.oldest)/2
		if err := g.scan(ctx, span, since, half); err != nil {
			return err
		}
		return g.scan(ctx, span, half, to)
	}
	slices.SortStableFunc(done.changes, func(a, b *pb.ReadCell) int {
		return cmp.Compare(a.CommitTs, b.CommitTs)
	})
	g.page = append(g.page, done.changes...)
	if g.size += done.size; g.size < changesPage {
		return nil
	}
	page := g.page
	g.page, g.size = nil, 0
	if !g.f.pass(ctx, changesOf{of: g.r, changes: page}) {
		return ctx.Err()
	}
	return nil
}
