package closure

import (
	"context"
	"iter"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

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
	return c.scan(ctx, r, rowRecord, c.rows(rowRecord, mark))
}

// All yields the nodes that any mark reaches, ordered by mark and node.
func (c *Closure) All(ctx context.Context, r percolator.Reader) iter.Seq2[Reached, error] {
	return c.scan(ctx, r, rowRecord, percolator.Rows(c.cfg.Name).Prefix(tuple.Prefix(rowRecord)))
}

// Marks yields the marks that reach the node, ordered by name.
func (c *Closure) Marks(ctx context.Context, r percolator.Reader,
	node string) iter.Seq2[Reached, error] {
	return c.scan(ctx, r, rowMarks, c.rows(rowMarks, node))
}

func (c *Closure) scan(ctx context.Context, r percolator.Reader, kind int,
	rows percolator.RowRange) iter.Seq2[Reached, error] {
	return func(yield func(Reached, error) bool) {
		for cell, err := range c.records.Scan(ctx, r, rows) {
			found := Reached{Depth: cell.Value.depth, Parent: cell.Value.parent}
			first, second := &found.Mark, &found.Node
			if kind == rowMarks {
				first, second = second, first
			}
			if err == nil {
				err = tuple.Unpack(cell.Row, &kind, first, second)
			}
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// Path returns a path from a seed of the mark to the node, including both. It returns nil if the
// mark does not reach the node, or if the path is currently being cut.
func (c *Closure) Path(ctx context.Context, r percolator.Reader, mark,
	node string) ([]string, error) {
	var back []string
	depth := -1
	for {
		found, ok, err := c.records.Get(ctx, r, tuple.Pack(rowRecord, mark, node))
		if err != nil || !ok || depth >= 0 && found.depth >= depth {
			return nil, err
		}
		back, depth = append(back, node), found.depth
		if depth == 0 {
			break
		}
		node = found.parent
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	return back, nil
}

// Progress is the progress of a mark's wave.
type Progress struct {
	Size    int // nodes reached so far
	Waiting int // nodes queued for the wave, without checks that were just requested
}

// Progress returns the progress of the mark's wave; the zero Progress if the mark has never been
// used.
func (c *Closure) Progress(ctx context.Context, r percolator.Reader,
	mark string) (Progress, error) {
	s, _, err := c.states.Get(ctx, r, tuple.Pack(rowMark, mark))
	p := Progress{Size: s.Size}
	for _, q := range s.Queues {
		p.Waiting += q.Waiting
	}
	return p, err
}

// Edges yields the edges as pairs of source and target, ordered by source.
func (c *Closure) Edges(ctx context.Context, r percolator.Reader) iter.Seq2[[2]string, error] {
	return pairs(ctx, r, percolator.Rows(c.cfg.Name).Prefix(tuple.Prefix(rowOut)), c.edge)
}

// Seeds yields the seeds as pairs of mark and node, ordered by mark.
func (c *Closure) Seeds(ctx context.Context, r percolator.Reader) iter.Seq2[[2]string, error] {
	return pairs(ctx, r, percolator.Rows(c.cfg.Name).Prefix(tuple.Prefix(rowSeed)), c.seed)
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
