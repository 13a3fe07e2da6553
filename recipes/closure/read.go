package closure

import (
	"context"
	"iter"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Has reports whether the mark reaches the node. It reads one cell.
func (c *Closure) Has(ctx context.Context, r percolator.Reader, mark, node string) (bool, error) {
	_, ok, err := r.Get(ctx, tuple.Pack(rowReached, mark, node), c.reached)
	return ok, err
}

// ReachedColumn returns the column that has a cell for each mark and node that it reaches, in the
// row parsed by ParseReached. The cell is written exactly when the node becomes reached or
// unreached (Has): observe the column to act on that.
func (c *Closure) ReachedColumn() percolator.Column { return c.reached }

// ParseReached returns the mark and the node of a row of ReachedColumn.
func ParseReached(row string) (mark, node string, err error) {
	var kind int
	err = tuple.Unpack(row, &kind, &mark, &node)
	return mark, node, err
}

// Settled reports whether all changes that the reader sees have taken effect: whether what
// marks reach is exactly what the edges and seeds in its snapshot imply.
func (c *Closure) Settled(ctx context.Context, r percolator.Reader) (bool, error) {
	for _, err := range r.Scan(ctx, c.rows(rowTasks).Limit(1), c.tasks) {
		return false, err
	}
	return true, nil
}

// Reached is a node that a mark reaches.
type Reached struct {
	Mark, Node string
	// Depth is the length of the path by which the mark reached the node; 0 for a seed. There
	// may be a shorter path.
	Depth int
	// Parent is the preceding node on that path; empty for a seed.
	Parent string
}

// Reached yields the nodes that the mark reaches, ordered by name.
func (c *Closure) Reached(ctx context.Context, r percolator.Reader,
	mark string) iter.Seq2[Reached, error] {
	return c.reachedIn(ctx, r, c.rows(rowReached, mark))
}

// All yields the nodes that any mark reaches, ordered by mark and node.
func (c *Closure) All(ctx context.Context, r percolator.Reader) iter.Seq2[Reached, error] {
	return c.reachedIn(ctx, r, c.rows(rowReached))
}

// reachedIn yields the nodes of rows of ReachedColumn, with their records, in pages.
func (c *Closure) reachedIn(ctx context.Context, r percolator.Reader,
	rows percolator.RowRange) iter.Seq2[Reached, error] {
	return func(yield func(Reached, error) bool) {
		var found []Reached
		var keys []string
		flush := func() bool {
			cells, err := c.records.GetMulti(ctx, r, keys...)
			for i := range found {
				if err == nil {
					found[i].Depth, found[i].Parent = cells[i].Value.depth, cells[i].Value.parent
				}
				if !yield(found[i], err) || err != nil {
					return false
				}
			}
			found, keys = found[:0], keys[:0]
			return true
		}
		for pair, err := range pairs(ctx, r, rows, c.reached) {
			if err != nil {
				yield(Reached{}, err)
				return
			}
			found = append(found, Reached{Mark: pair[0], Node: pair[1]})
			keys = append(keys, tuple.Pack(rowRecord, pair[1], pair[0]))
			if len(found) == cellsAtOnce && !flush() {
				return
			}
		}
		flush()
	}
}

// Marks yields the marks that reach the node, ordered by name.
func (c *Closure) Marks(ctx context.Context, r percolator.Reader,
	node string) iter.Seq2[Reached, error] {
	return func(yield func(Reached, error) bool) {
		for cell, err := range c.records.Scan(ctx, r, c.rows(rowRecord, node)) {
			found := Reached{Node: node, Depth: cell.Value.depth, Parent: cell.Value.parent}
			if err == nil {
				var kind int
				err = tuple.Unpack(cell.Row, &kind, &found.Node, &found.Mark)
			}
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// Path returns a path from a seed of the mark to the node, including both; nil if the mark does
// not reach the node. In a snapshot that is not settled it may contain an edge or begin at a
// seed that no longer exists, and is nil if it has no beginning any more.
func (c *Closure) Path(ctx context.Context, r percolator.Reader, mark,
	node string) ([]string, error) {
	var back []string
	depth := -1
	for {
		found, ok, err := c.records.Get(ctx, r, tuple.Pack(rowRecord, node, mark))
		if err != nil || !ok || depth >= 0 && found.depth >= depth {
			return nil, err
		}
		back, depth = append(back, node), found.depth
		if depth == 0 {
			break
		}
		node = found.parent
	}
	slices.Reverse(back)
	return back, nil
}

// Progress is the nodes that a mark reaches and the amount of the closure's pending work.
type Progress struct {
	Size int // nodes that the mark reaches
	// Waiting is the number of changes, and of nodes from which to spread or to check, that the
	// wave has still to process, of all marks; 0 if the snapshot is settled.
	Waiting int
}

// Progress returns what the mark reaches and the work that is left. It counts both by reading
// them.
func (c *Closure) Progress(ctx context.Context, r percolator.Reader,
	mark string) (p Progress, err error) {
	for _, err := range r.Scan(ctx, c.rows(rowReached, mark), c.reached) {
		if err != nil {
			return p, err
		}
		p.Size++
	}
	for cell, err := range r.Scan(ctx, c.rows(rowTasks), c.tasks) {
		if err != nil {
			return p, err
		}
		tasks, err := parseTasks(cell.Value)
		if err != nil {
			return p, err
		}
		p.Waiting += len(tasks)
	}
	return p, nil
}

// Edges yields the edges as pairs of source and target, ordered by source.
func (c *Closure) Edges(ctx context.Context, r percolator.Reader) iter.Seq2[[2]string, error] {
	return pairs(ctx, r, c.rows(rowOut), c.edge)
}

// Seeds yields the seeds as pairs of mark and node, ordered by mark.
func (c *Closure) Seeds(ctx context.Context, r percolator.Reader) iter.Seq2[[2]string, error] {
	return pairs(ctx, r, c.rows(rowSeed), c.seed)
}

// rows returns the range of the rows that begin with the elements.
func (c *Closure) rows(elements ...any) percolator.RowRange {
	return percolator.Rows(c.cfg.Name).Prefix(tuple.Prefix(elements...))
}

func pairs(ctx context.Context, r percolator.Reader, rows percolator.RowRange,
	col percolator.Column) iter.Seq2[[2]string, error] {
	return func(yield func([2]string, error) bool) {
		for cell, err := range r.Scan(ctx, rows, col) {
			var pair [2]string
			if err == nil {
				var kind int
				err = tuple.Unpack(cell.Row, &kind, &pair[0], &pair[1])
			}
			if !yield(pair, err) || err != nil {
				return
			}
		}
	}
}
