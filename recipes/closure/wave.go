package closure

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// blockBytes is the approximate maximum size of a block's value.
const blockBytes = 64 << 10

// wave is one run of the observer of marks: its reads and its pending writes.
type wave struct {
	c     *Closure
	tx    *percolator.Tx
	mark  string
	state state
	// records has the records read so far, by node; nil if a node has none.
	records map[string]*record
	queued  [queues][]waiting // for later runs
}

// advance is the observer of marks: it does one step of a mark's wave. Every run writes the
// mark's state, so concurrent runs of one mark conflict.
func (c *Closure) advance(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	w := wave{c: c, tx: tx, records: map[string]*record{}}
	var kind int
	err := tuple.Unpack(n.Row, &kind, &w.mark)
	if err != nil {
		return err
	}
	if w.state, _, err = c.states.Get(ctx, tx, n.Row); err != nil {
		return err
	}
	more, err := w.takeChecks(ctx)
	if err != nil {
		return err
	}
	for q, step := range []func(context.Context, []waiting) error{w.cut, w.derive, w.spread} {
		if w.state.Queues[q].Waiting == 0 {
			continue
		}
		taken, err := w.take(ctx, q)
		if err != nil {
			return err
		}
		if err := step(ctx, taken); err != nil {
			return err
		}
		break
	}
	for q := range w.queued {
		w.put(q)
		more = more || w.state.Queues[q].Waiting > 0
	}
	switch {
	case more:
		tx.Notify(n.Row, c.wake)
		fallthrough
	case w.state.Size > 0:
		c.states.Set(tx, n.Row, w.state)
	default: // a deletion is a write too: runs stay serial
		c.states.Delete(tx, n.Row)
	}
	return nil
}

// takeChecks moves requested checks to the queues of cuts and derivations, and reports whether
// there may be more.
func (w *wave) takeChecks(ctx context.Context) (more bool, err error) {
	var nodes []string
	rows := w.c.rows(rowCheck, w.mark).Limit(w.c.cfg.Batch)
	for cell, err := range w.tx.Scan(ctx, rows, w.c.check) {
		if err != nil {
			return false, err
		}
		var node string
		if err := last(cell.Row, &node); err != nil {
			return false, err
		}
		nodes = append(nodes, node)
		w.tx.Delete(cell.Row, w.c.check)
	}
	if err := w.load(ctx, nodes); err != nil {
		return false, err
	}
	for _, node := range nodes {
		q := cuts // cut checks whether the record is justified
		if w.records[node] == nil {
			q = derivations
		}
		w.queued[q] = append(w.queued[q], waiting{node: node})
	}
	return len(nodes) == w.c.cfg.Batch, nil
}

// cut deletes records that are not justified, and queues cuts of their children and derivations
// of their nodes.
func (w *wave) cut(ctx context.Context, taken []waiting) error {
	justified, err := w.justified(ctx, taken)
	if err != nil {
		return err
	}
	var gone []waiting // nodes without a record, whose children are cut
	for _, n := range taken {
		switch {
		case n.after != "":
			gone = append(gone, n) // an earlier run deleted its record
		case w.records[n.node] != nil && !justified[n.node]:
			w.set(n.node, nil)
			w.queued[derivations] = append(w.queued[derivations], n)
			gone = append(gone, n)
		}
	}
	ends, err := w.neighbours(ctx, rowOut, gone, cuts)
	if err != nil {
		return err
	}
	for i, n := range gone {
		for _, child := range ends[i] {
			if r := w.records[child]; r != nil && r.depth > 0 && r.parent == n.node {
				w.queued[cuts] = append(w.queued[cuts], waiting{node: child})
			}
		}
	}
	return nil
}

// derive creates records for nodes without one that are seeds or have an edge from a node with
// a record.
func (w *wave) derive(ctx context.Context, taken []waiting) error {
	if err := w.load(ctx, names(taken)); err != nil {
		return err
	}
	seeds, err := w.seeds(ctx, names(taken))
	if err != nil {
		return err
	}
	var rest []waiting
	for _, n := range taken {
		switch {
		case w.records[n.node] != nil:
		case seeds[n.node]:
			w.set(n.node, &record{})
		default:
			rest = append(rest, n)
		}
	}
	ends, err := w.neighbours(ctx, rowIn, rest, derivations)
	if err != nil {
		return err
	}
	for i, n := range rest {
		var best *record
		for _, source := range ends[i] {
			if r := w.records[source]; r != nil && (best == nil || r.depth+1 < best.depth) {
				best = &record{depth: r.depth + 1, parent: source}
			}
		}
		if best != nil && w.records[n.node] == nil {
			w.set(n.node, best)
		}
	}
	return nil
}

// spread creates records for the successors without one of the taken nodes.
func (w *wave) spread(ctx context.Context, taken []waiting) error {
	justified, err := w.justified(ctx, taken)
	if err != nil {
		return err
	}
	var sources []waiting
	for _, n := range taken {
		switch {
		case w.records[n.node] == nil:
		case justified[n.node]:
			sources = append(sources, n)
		default:
			w.queued[cuts] = append(w.queued[cuts], waiting{node: n.node})
		}
	}
	ends, err := w.neighbours(ctx, rowOut, sources, spreads)
	if err != nil {
		return err
	}
	for i, n := range sources {
		for _, end := range ends[i] {
			if w.records[end] == nil {
				w.set(end, &record{depth: w.records[n.node].depth + 1, parent: n.node})
			}
		}
	}
	return nil
}

// justified reports which of the nodes have a justified record: that of a seed, or one with an
// edge from a record of smaller depth. It reads the records that the queue does not have.
func (w *wave) justified(ctx context.Context, taken []waiting) (map[string]bool, error) {
	var unknown []string
	for _, n := range taken {
		if n.record != nil {
			w.records[n.node] = n.record
		} else {
			unknown = append(unknown, n.node)
		}
	}
	if err := w.load(ctx, unknown); err != nil {
		return nil, err
	}
	var seeds, parents []string
	var children []waiting
	var edges []percolator.CellKey
	for _, n := range taken {
		switch r := w.records[n.node]; {
		case r == nil:
		case r.depth == 0:
			seeds = append(seeds, n.node)
		default:
			children = append(children, n)
			if n.record == nil {
				parents = append(parents, r.parent)
			}
			edges = append(edges, percolator.CellKey{
				Row: tuple.Pack(rowIn, n.node, r.parent), Column: w.c.edge,
			})
		}
	}
	if err := w.load(ctx, parents); err != nil {
		return nil, err
	}
	justified, err := w.seeds(ctx, seeds)
	if err != nil {
		return nil, err
	}
	exist, err := existing(ctx, w.tx, edges)
	if err != nil {
		return nil, err
	}
	for i, n := range children {
		r := w.records[n.node]
		above := w.records[r.parent]
		justified[n.node] = exist[i] &&
			(n.record != nil || above != nil && above.depth < r.depth)
	}
	return justified, nil
}

// seeds reports which of the nodes are seeds.
func (w *wave) seeds(ctx context.Context, nodes []string) (map[string]bool, error) {
	keys := make([]percolator.CellKey, len(nodes))
	for i, node := range nodes {
		keys[i] = percolator.CellKey{Row: tuple.Pack(rowSeed, w.mark, node), Column: w.c.seed}
	}
	seeds := map[string]bool{}
	exist, err := existing(ctx, w.tx, keys)
	for i, node := range nodes {
		seeds[node] = exist[i]
	}
	return seeds, err
}

// neighbours reads the neighbours of the nodes and their records. It queues nodes with further
// neighbours again.
func (w *wave) neighbours(ctx context.Context, kind int, nodes []waiting,
	queue int) ([][]string, error) {
	ends, more, err := w.c.neighbours(ctx, w.tx, kind, nodes)
	if err != nil {
		return nil, err
	}
	var all []string
	for i, n := range nodes {
		all = append(all, ends[i]...)
		if more[i] {
			n.after = ends[i][len(ends[i])-1]
			w.queued[queue] = append(w.queued[queue], n)
		}
	}
	return ends, w.load(ctx, all)
}

// load reads the records of the nodes that are not read yet.
func (w *wave) load(ctx context.Context, nodes []string) error {
	var missing, rows []string
	for _, node := range nodes {
		if _, ok := w.records[node]; !ok {
			w.records[node] = nil
			missing = append(missing, node)
			rows = append(rows, tuple.Pack(rowRecord, w.mark, node))
		}
	}
	cells, err := w.c.records.GetMulti(ctx, w.tx, rows...)
	if err != nil {
		return err
	}
	for i, node := range missing { // the cells are in the order of the rows
		if len(cells) > 0 && cells[0].Row == rows[i] {
			w.records[node] = &cells[0].Value
			cells = cells[1:]
		}
	}
	return nil
}

// set writes a record and queues its spread; with nil it deletes the record.
func (w *wave) set(node string, r *record) {
	w.records[node] = r
	for _, row := range []string{
		tuple.Pack(rowRecord, w.mark, node), tuple.Pack(rowMarks, node, w.mark),
	} {
		if r != nil {
			w.c.records.Set(w.tx, row, *r)
		} else {
			w.c.records.Delete(w.tx, row)
		}
	}
	if r == nil {
		w.state.Size--
		w.state.Cuts++
		return
	}
	w.state.Size++
	w.queued[spreads] = append(w.queued[spreads], waiting{node: node, record: r})
}

// take removes the first blocks of a queue: one, or several with at most Config.Batch nodes.
func (w *wave) take(ctx context.Context, q int) ([]waiting, error) {
	state := &w.state.Queues[q]
	var taken []waiting
	rows := percolator.Rows(w.c.cfg.Name).Prefix(tuple.Prefix(rowBlock, w.mark, q)).
		From(tuple.Pack(rowBlock, w.mark, q, state.First)).Limit(edgesPerNode)
	for b, err := range w.c.blocks.Scan(ctx, w.tx, rows) {
		if err != nil {
			return nil, err
		}
		if len(taken) > 0 && len(taken)+len(b.Value.nodes) > w.c.cfg.Batch {
			break
		}
		for _, n := range b.Value.nodes {
			if b.Value.cuts != w.state.Cuts {
				n.record = nil // it or its parent's record may have changed
			}
			taken = append(taken, n)
		}
		w.c.blocks.Delete(w.tx, b.Row)
		state.First++
	}
	state.Waiting -= len(taken)
	return taken, nil
}

// put appends the nodes queued by this run to the queue.
func (w *wave) put(q int) {
	state := &w.state.Queues[q]
	b := block{cuts: w.state.Cuts}
	bytes := 0
	end := func() {
		if len(b.nodes) > 0 {
			w.c.blocks.Set(w.tx, tuple.Pack(rowBlock, w.mark, q, state.Next), b)
			state.Next++
			b.nodes, bytes = nil, 0
		}
	}
	for _, n := range w.queued[q] {
		if len(b.nodes) == w.c.cfg.Batch || bytes >= blockBytes {
			end()
		}
		b.nodes, bytes = append(b.nodes, n), bytes+len(n.node)+len(n.after)
		if n.record != nil {
			bytes += len(n.record.parent)
		}
	}
	end()
	state.Waiting += len(w.queued[q])
}

func names(nodes []waiting) []string {
	all := make([]string, len(nodes))
	for i, n := range nodes {
		all[i] = n.node
	}
	return all
}
