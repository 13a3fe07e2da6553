package closure

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// edgesPerNode is the number of edges, or marks, read per node of a full batch; with fewer
// nodes, more are read per node.
const edgesPerNode = 8

// scansAtOnce is the maximum number of concurrent scans of one run.
const scansAtOnce = 32

// edgesChanged is the observer of edges. A notification's row has the changed edges, and the last
// processed mark if an earlier run could not process all.
func (c *Closure) edgesChanged(ctx context.Context, tx *percolator.Tx,
	changes []percolator.Notification) error {
	var edges []change
	var keys []percolator.CellKey
	for _, n := range changes {
		told, err := parseChanged(n.Row)
		if err != nil {
			return err
		}
		for _, e := range told.edges {
			edges = append(edges, change{from: e[0], to: e[1], after: told.after})
			keys = append(keys, percolator.CellKey{Row: tuple.Pack(rowOut, e[0], e[1]), Column: c.edge})
		}
	}
	exist, err := existing(ctx, tx, keys)
	if err != nil {
		return err
	}
	var nodes []waiting // whose marks are to be read
	for i, e := range edges {
		nodes = append(nodes, waiting{node: e.to, after: e.after})
		if exist[i] {
			nodes = append(nodes, waiting{node: e.from, after: e.after})
		}
	}
	marks, err := c.marksOf(ctx, tx, nodes)
	if err != nil {
		return err
	}
	var targets []Reached // which marks may have come to
	for i, e := range edges {
		source, target := reaching{}, marks[waiting{node: e.to, after: e.after}]
		if exist[i] {
			source = marks[waiting{node: e.from, after: e.after}]
		}
		for _, m := range source.marks {
			targets = append(targets, Reached{Mark: m.mark, Node: e.to})
		}
		for _, m := range target.marks {
			// Even if the edge exists: it may have been deleted for a while, during which the
			// record of the source was deleted. Only the wave can determine the order.
			if m.record.depth > 0 && m.record.parent == e.from {
				c.requestCheck(tx, m.mark, e.to)
			}
		}
		if next, more := readUpTo(source, target); more {
			tx.Notify(changed{next, [][2]string{{e.from, e.to}}}.row(), c.changed)
		}
	}
	return c.checkMissing(ctx, tx, targets)
}

// readUpTo returns the mark up to which both have been read, and whether there are more.
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

// checkMissing requests checks of the nodes that have no record of the mark.
func (c *Closure) checkMissing(ctx context.Context, tx *percolator.Tx,
	nodes []Reached) error {
	keys := make([]percolator.CellKey, len(nodes))
	for i, n := range nodes {
		keys[i] = c.records.Key(tuple.Pack(rowRecord, n.Mark, n.Node))
	}
	exist, err := existing(ctx, tx, keys)
	for i, n := range nodes {
		if err == nil && !exist[i] {
			c.requestCheck(tx, n.Mark, n.Node)
		}
	}
	return err
}

// existing reports which of the cells exist.
func existing(ctx context.Context, tx *percolator.Tx, keys []percolator.CellKey) ([]bool, error) {
	exist := make([]bool, len(keys))
	cells, err := tx.GetMulti(ctx, keys...)
	for i, key := range keys { // the cells are in their order
		if len(cells) > 0 && cells[0].CellKey == key {
			exist[i], cells = true, cells[1:]
		}
	}
	return exist, err
}

// change is an edge that has changed.
type change struct {
	from, to string
	after    string // marks up to this one are done
}

// changed is the row of a notification that edges have changed.
type changed struct {
	after string // marks up to this one are done
	edges [][2]string
}

func (c changed) row() string {
	elements := []any{rowEdges, c.after}
	for _, e := range c.edges {
		elements = append(elements, e[0], e[1])
	}
	return tuple.Pack(elements...)
}

func parseChanged(row string) (c changed, err error) {
	elements, err := tuple.Parse(row)
	if err == nil && len(elements)%2 != 0 {
		err = fmt.Errorf("closure: row %q is not of edges", row)
	}
	if err != nil {
		return c, err
	}
	c.after, _ = elements[1].(string)
	for pair := range slices.Chunk(elements[2:], 2) {
		from, _ := pair[0].(string)
		to, _ := pair[1].(string)
		c.edges = append(c.edges, [2]string{from, to})
	}
	return c, nil
}

// reaching is a page of the marks that reach a node; more reports whether there are further ones.
type reaching struct {
	marks []reachingMark
	more  bool
}

type reachingMark struct {
	mark   string
	record record
}

// marksOf reads a page of the marks of each node, starting after waiting.after.
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
			prefix := tuple.Prefix(rowMarks, n.node)
			rows := c.behind(prefix, n.after).Limit(limit)
			for cell, err := range c.records.Scan(ctx, tx, rows) {
				if err != nil {
					return err
				}
				m := reachingMark{record: cell.Value}
				if err := tuple.Unpack(cell.Row[len(prefix):], &m.mark); err != nil {
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

// neighbours reads a page of the neighbours of each node, starting after waiting.after; kind is
// rowOut or rowIn. more reports for each node whether it has further ones.
func (c *Closure) neighbours(ctx context.Context, tx *percolator.Tx, kind int,
	nodes []waiting) (ends [][]string, more []bool, err error) {
	ends, more = make([][]string, len(nodes)), make([]bool, len(nodes))
	limit := c.limit(len(nodes))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(scansAtOnce)
	for i, n := range nodes {
		group.Go(func() error {
			prefix := tuple.Prefix(kind, n.node)
			rows := c.behind(prefix, n.after).Limit(limit)
			for cell, err := range tx.Scan(ctx, rows, c.edge) {
				if err != nil {
					return err
				}
				var end string
				if err := tuple.Unpack(cell.Row[len(prefix):], &end); err != nil {
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

// limit returns the maximum number of edges to read per node.
func (c *Closure) limit(nodes int) int {
	return max(edgesPerNode, edgesPerNode*c.cfg.Batch/max(nodes, 1))
}

// rows returns the range of the rows that begin with the two elements.
func (c *Closure) rows(kind int, first string) percolator.RowRange {
	return percolator.Rows(c.cfg.Name).Prefix(tuple.Prefix(kind, first))
}

// behind returns the range of the rows with the prefix, starting after the row of element; all
// rows if element is empty.
func (c *Closure) behind(prefix, element string) percolator.RowRange {
	rows := percolator.Rows(c.cfg.Name).Prefix(prefix)
	if element == "" {
		return rows
	}
	return rows.From(prefix + tuple.Pack(element) + "\x00")
}

// last stores the third element of a row.
func last(row string, into *string) error {
	var kind int
	var first string
	return tuple.Unpack(row, &kind, &first, into)
}
