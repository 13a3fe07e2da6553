package closure

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

const (
	readsAtOnce = 32   // concurrent reads of one run
	cellsAtOnce = 1000 // cells of one read
)

// place is the start of a page: after one of the node's neighbours or marks, or at the first.
type place struct{ node, after string }

// page has neighbours or marks of a node, in order.
type page struct {
	names   []string
	records []record // of marks
	more    bool     // there may be further ones
}

func (p page) last() string { return p.names[len(p.names)-1] }

// pages reads a page of each place: sources (rowIn), targets (rowOut), or marks that reach the
// node (rowRecord), whose records it keeps.
func (r *run) pages(ctx context.Context, kind int, places []place, limit int) ([]page, error) {
	index := map[place]int{} // of the distinct places
	var distinct []place
	for _, p := range places {
		if _, ok := index[p]; !ok {
			index[p] = len(distinct)
			distinct = append(distinct, p)
		}
	}
	read := make([]page, len(distinct))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i, p := range distinct {
		group.Go(func() (err error) {
			read[i], err = r.c.page(ctx, r.tx, kind, p, limit)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, found := range read {
		for j, rec := range found.records {
			p := pair{found.names[j], distinct[i].node}
			if _, ok := r.records[p]; !ok {
				r.records[p] = &rec
			}
		}
	}
	all := make([]page, len(places))
	for i, p := range places {
		all[i] = read[index[p]]
	}
	return all, nil
}

func (c *Closure) page(ctx context.Context, tx *percolator.Tx, kind int, at place,
	limit int) (found page, err error) {
	prefix := tuple.Prefix(kind, at.node)
	rows := percolator.Rows(c.cfg.Name).Prefix(prefix).Limit(limit)
	if at.after != "" {
		rows = rows.From(prefix + tuple.Pack(at.after) + "\x00")
	}
	column := c.edge
	if kind == rowRecord {
		column = c.records.Column
	}
	for cell, err := range tx.Scan(ctx, rows, column) {
		if err != nil {
			return found, err
		}
		var name string
		if err := tuple.Unpack(cell.Row[len(prefix):], &name); err != nil {
			return found, err
		}
		found.names = append(found.names, name)
		if kind == rowRecord {
			rec, err := c.records.Decode(cell)
			if err != nil {
				return found, err
			}
			found.records = append(found.records, rec)
		}
	}
	found.more = len(found.names) == limit
	return found, nil
}

// neighbours reads a page of sources (rowIn) or targets (rowOut) of each item, with the records
// of the item's mark, and visits them until visit returns false. It returns the item for which
// visit returned false and all behind it, and those that have further neighbours.
func (r *run) neighbours(ctx context.Context, kind int, items []item,
	visit func(it item, ends []string) bool) (rest []item, err error) {
	slices.SortFunc(items, func(a, b item) int { // so that marks share the pages of a node
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.after, b.after),
			cmp.Compare(a.mark, b.mark))
	})
	for len(items) > 0 {
		now := items[:min(chunk, len(items))]
		places := make([]place, len(now))
		for i, it := range now {
			places[i] = place{it.node, it.after}
		}
		pages, err := r.pages(ctx, kind, places, pageSize/len(now))
		if err != nil {
			return nil, err
		}
		var pairs []pair
		for i, it := range now {
			for _, end := range pages[i].names {
				pairs = append(pairs, pair{it.mark, end})
			}
		}
		if err := r.load(ctx, pairs); err != nil {
			return nil, err
		}
		for i, it := range now {
			if !visit(it, pages[i].names) {
				return append(rest, items[i:]...), nil
			}
			if pages[i].more {
				it.after = pages[i].last()
				rest = append(rest, it)
			}
		}
		items = items[len(now):]
	}
	return rest, nil
}

// load reads the records of the pairs that the run has not read.
func (r *run) load(ctx context.Context, pairs []pair) error {
	var missing []pair
	var keys []percolator.CellKey
	for _, p := range pairs {
		if _, ok := r.records[p]; !ok {
			r.records[p] = nil
			missing = append(missing, p)
			keys = append(keys, r.c.records.Key(tuple.Pack(rowRecord, p.node, p.mark)))
		}
	}
	cells, err := r.cells(ctx, keys)
	if err != nil {
		return err
	}
	for i, cell := range cells {
		if cell == nil {
			continue
		}
		rec, err := r.c.records.Decode(*cell)
		if err != nil {
			return err
		}
		r.records[missing[i]] = &rec
	}
	return nil
}

// exist reports which of the cells exist.
func (r *run) exist(ctx context.Context, keys []percolator.CellKey) ([]bool, error) {
	cells, err := r.cells(ctx, keys)
	exist := make([]bool, len(keys))
	for i, cell := range cells {
		exist[i] = cell != nil
	}
	return exist, err
}

// cells reads the cells; nil for those that do not exist.
func (r *run) cells(ctx context.Context, keys []percolator.CellKey) ([]*percolator.Cell, error) {
	all := make([]*percolator.Cell, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for first := 0; first < len(keys); first += cellsAtOnce {
		part := keys[first:min(first+cellsAtOnce, len(keys))]
		group.Go(func() error {
			cells, err := r.tx.GetMulti(ctx, part...)
			for i, key := range part { // the cells are in the order of the keys
				if len(cells) > 0 && cells[0].CellKey == key {
					all[first+i], cells = &cells[0], cells[1:]
				}
			}
			return err
		})
	}
	return all, group.Wait()
}

func (c *Closure) edgeKey(from, to string) percolator.CellKey {
	return percolator.CellKey{Row: tuple.Pack(rowOut, from, to), Column: c.edge}
}

func (c *Closure) seedKey(p pair) percolator.CellKey {
	return percolator.CellKey{Row: tuple.Pack(rowSeed, p.mark, p.node), Column: c.seed}
}
