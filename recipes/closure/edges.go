package closure

import (
	"context"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// edgesPerNode is how many edges, or marks, are read for each node of a full batch. If
// there are fewer nodes each may have more.
const edgesPerNode = 8

// scansAtOnce bounds how many scans one run has under way.
const scansAtOnce = 32

// edgesChanged is the observer of edges. A notification's row is that of an edge, with a
// mark behind it if the run before it had got that far among many.
func (c *Closure) edgesChanged(ctx context.Context, tx *percolator.Tx,
	changes []percolator.Notification) error {
	edges := make([]change, len(changes))
	keys := make([]percolator.CellKey, len(changes))
	for i, n := range changes {
		if err := edges[i].parse(n.Row); err != nil {
			return err
		}
		keys[i] = percolator.CellKey{
			Row: tuple.Pack(rowOut, edges[i].from, edges[i].to), Column: c.edge,
		}
	}
	cells, err := tx.GetMulti(ctx, keys...)
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, cell := range cells {
		exists[cell.Row] = true
	}
	var nodes []waiting // whose marks are to be read
	for i, e := range edges {
		nodes = append(nodes, waiting{e.to, e.after})
		if exists[keys[i].Row] {
			nodes = append(nodes, waiting{e.from, e.after})
		}
	}
	marks, err := c.marksOf(ctx, tx, nodes)
	if err != nil {
		return err
	}
	var targets []string // records of marks that may have come further
	for i, e := range edges {
		source, target := reaching{}, marks[waiting{e.to, e.after}]
		if exists[keys[i].Row] {
			source = marks[waiting{e.from, e.after}]
		}
		for _, m := range source.marks {
			targets = append(targets, tuple.Pack(rowRecord, m.mark, e.to))
		}
		for _, m := range target.marks {
			// Also if the edge exists: it may have been gone in between, while the record of
			// the source was deleted. Only the wave knows in what order that was.
			if m.record.depth > 0 && m.record.parent == e.from {
				c.ask(tx, m.mark, e.to)
			}
		}
		if next, more := readUpTo(source, target); more {
			tx.Notify(tuple.Pack(rowOut, e.from, e.to, next), c.changed)
		}
	}
	return c.askWhereMissing(ctx, tx, targets)
}

// readUpTo tells up to which mark both have been read, if there are more.
func readUpTo(a, b reaching) (mark string, more bool) {
	for _, r := range []reaching{a, b} {
		if !r.more {
			continue
		}
		if last := r.marks[len(r.marks)-1].mark; !more || last < mark {
			mark, more = last, true
		}
	}
	return mark, more
}

// askWhereMissing has those of the records checked that do not exist.
func (c *Closure) askWhereMissing(ctx context.Context, tx *percolator.Tx, rows []string) error {
	have, err := c.records.GetMulti(ctx, tx, rows...)
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, cell := range have {
		exists[cell.Row] = true
	}
	for _, row := range rows {
		if exists[row] {
			continue
		}
		var kind int
		var mark, node string
		if err := tuple.Unpack(row, &kind, &mark, &node); err != nil {
			return err
		}
		c.ask(tx, mark, node)
	}
	return nil
}

// change is an edge that has changed.
type change struct {
	from, to string
	after    string // marks up to this one are done
}

func (e *change) parse(row string) error {
	var kind int
	if err := tuple.Unpack(row, &kind, &e.from, &e.to); err == nil {
		return nil
	}
	return tuple.Unpack(row, &kind, &e.from, &e.to, &e.after)
}

// reaching are marks that reach a node, and whether there are more behind them.
type reaching struct {
	marks []reachingMark
	more  bool
}

type reachingMark struct {
	mark   string
	record record
}

// marksOf reads marks of nodes, each behind the one that it says.
func (c *Closure) marksOf(ctx context.Context, tx *percolator.Tx,
	nodes []waiting) (map[waiting]reaching, error) {
	found := map[waiting]reaching{}
	var distinct []waiting
	for _, n := range nodes {
		if _, ok := found[n]; !ok {
			found[n] = reaching{}
			distinct = append(distinct, n)
		}
	}
	results := make([]reaching, len(distinct))
	limit := c.limit(len(distinct))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scansAtOnce)
	for i, n := range distinct {
		group.Go(func() error {
			rows := c.rows(rowMarks, n.node).From(after(n.after, rowMarks, n.node)).Limit(limit)
			for cell, err := range c.records.Scan(ctx, tx, rows) {
				if err != nil {
					return err
				}
				m := reachingMark{record: cell.Value}
				if err := last(cell.Row, &m.mark); err != nil {
					return err
				}
				results[i].marks = append(results[i].marks, m)
			}
			results[i].more = len(results[i].marks) == limit
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, n := range distinct {
		found[n] = results[i]
	}
	return found, nil
}

// neighbours reads the other ends of nodes' edges, each behind the one that it says: kind
// is rowOut or rowIn. It tells of which nodes there are more.
func (c *Closure) neighbours(ctx context.Context, tx *percolator.Tx, kind int,
	nodes []waiting) (ends [][]string, more []bool, err error) {
	ends, more = make([][]string, len(nodes)), make([]bool, len(nodes))
	limit := c.limit(len(nodes))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scansAtOnce)
	for i, n := range nodes {
		group.Go(func() error {
			rows := c.rows(kind, n.node).From(after(n.after, kind, n.node)).Limit(limit)
			for cell, err := range tx.Scan(ctx, rows, c.edge) {
				if err != nil {
					return err
				}
				var end string
				if err := last(cell.Row, &end); err != nil {
					return err
				}
				ends[i] = append(ends[i], end)
			}
			more[i] = len(ends[i]) == limit
			return nil
		})
	}
	return ends, more, group.Wait()
}

// limit is how many edges may be read of each of so many nodes.
func (c *Closure) limit(nodes int) int {
	return max(edgesPerNode, edgesPerNode*c.cfg.Batch/max(nodes, 1))
}

// rows is the range of the rows of three elements that begin with these two.
func (c *Closure) rows(kind int, first string) percolator.RowRange {
	return percolator.Rows(c.cfg.Name).Prefix(tuple.Prefix(kind, first))
}

// after is the row behind the one of the three elements; if end is empty, before all.
func after(end string, kind int, first string) string {
	if end == "" {
		return ""
	}
	return tuple.Pack(kind, first, end) + "\x00"
}

// last stores the third element of a row.
func last(row string, into *string) error {
	var kind int
	var first string
	return tuple.Unpack(row, &kind, &first, into)
}
