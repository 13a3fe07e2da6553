package closure

import (
	"context"
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

const (
	// chunk is the maximum number of nodes whose neighbours are read at once.
	chunk = 512
	// pageSize is the maximum number of neighbours or marks that are read at once, of all nodes.
	pageSize = 16 << 10
	// readsPerRecord is the number of neighbours and marks that a run reads for each record that it
	// may create, not counting those of suspects.
	readsPerRecord = 64
	// maxSuspects bounds the memory of a run.
	maxSuspects = 1 << 20
)

// pair is a mark and a node.
type pair struct{ mark, node string }

// item is a pair whose neighbours are to be read, after one of them or from the first.
type item struct {
	pair
	after string
}

// suspect is a record whose path from a seed may no longer exist.
type suspect struct {
	record  record
	root    bool // the record itself is not justified; otherwise its parent is suspect too
	reached bool // by another path: it has a new record
}

// run is one run of the wave.
type run struct {
	c        *Closure
	tx       *percolator.Tx
	records  map[pair]*record // read or written by the run; nil if there is none
	suspects map[pair]*suspect
	reached  []pair // pairs whose records the run writes
	front    []item // reached nodes from which to spread
	created  int    // number of records created for nodes that had none
	read     int    // number of neighbours and marks read
	full     bool   // the run must not create or read more
	// waiting has the suspects from which the marks spread if they are reached again.
	waiting map[pair]bool
	left    [kinds][]task // tasks left to later runs
}

// advance is the observer: one run of the wave.
func (c *Closure) advance(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	r := run{c: c, tx: tx, records: map[pair]*record{}, suspects: map[pair]*suspect{},
		waiting: map[pair]bool{}}
	var tasks [kinds][]task
	var more [kinds]bool
	for kind := range kinds {
		var err error
		if tasks[kind], more[kind], err = r.take(ctx, kind); err != nil {
			return err
		}
	}
	if err := r.suspect(ctx, tasks[removed], tasks[check]); err != nil {
		return err
	}
	r.read = 0
	if err := r.seeds(ctx, tasks[spread]); err != nil {
		return err
	}
	if err := r.follow(ctx, tasks[added]); err != nil {
		return err
	}
	if err := r.rescue(ctx); err != nil {
		return err
	}
	if err := r.flood(ctx); err != nil {
		return err
	}
	r.write(!r.full && !more[added] && !more[spread])
	tx.Set(n.Row, c.wave, nil) // so that overlapping runs conflict
	if slices.Contains(more[:], true) {
		tx.Notify(n.Row, c.wake)
	}
	return nil
}

// take removes tasks of the kind, about as many as the run may create records, and reports
// whether there are more.
func (r *run) take(ctx context.Context, kind int) (tasks []task, more bool, err error) {
	for cell, err := range r.tx.Scan(ctx, r.c.rows(rowTasks, kind), r.c.tasks) {
		if err != nil {
			return nil, false, err
		}
		if len(tasks) >= r.c.cfg.Batch {
			return tasks, true, nil
		}
		now, err := parseTasks(cell.Value)
		if err != nil {
			return nil, false, err
		}
		tasks = append(tasks, now...)
		r.tx.Delete(cell.Row, r.c.tasks)
	}
	return tasks, false, nil
}

// suspect finds the suspects of the tasks: first of one, then of twice as many each time, until
// there are as many as the run may create records, or it has read enough. It leaves the other tasks
// to later runs.
func (r *run) suspect(ctx context.Context, removes, checks []task) error {
	for n := 1; len(removes)+len(checks) > 0 && len(r.suspects) < r.c.cfg.Batch &&
		!r.readEnough(); n *= 2 {
		var named []pair
		for _, t := range checks[:min(n, len(checks))] {
			named = append(named, pair{t.a, t.b})
		}
		checks = checks[min(n, len(checks)):]
		now := removes[:min(n, len(removes), chunk)]
		removes = removes[len(now):]
		places := make([]place, len(now))
		for i, t := range now {
			places[i] = place{t.b, t.after}
		}
		pages, err := r.pages(ctx, rowRecord, places, max(1, n/max(1, len(now))))
		if err != nil {
			return err
		}
		for i, t := range now {
			r.read += len(pages[i].names)
			for _, mark := range pages[i].names {
				p := pair{mark, t.b}
				if rec := r.records[p]; rec.depth > 0 && rec.parent == t.a {
					named = append(named, p)
				}
			}
			if pages[i].more {
				removes = append(removes, task{t.a, t.b, pages[i].last()})
			}
		}
		roots, err := r.unjustified(ctx, named)
		if err != nil {
			return err
		}
		if err := r.expand(ctx, roots); err != nil {
			return err
		}
	}
	r.left[removed], r.left[check] = removes, checks
	return nil
}

// unjustified returns those of the pairs that have a record that is not justified.
func (r *run) unjustified(ctx context.Context, named []pair) ([]pair, error) {
	if err := r.load(ctx, named); err != nil {
		return nil, err
	}
	var parents []pair
	var support []percolator.CellKey // by record: the seed or edge that supports it
	named = slices.DeleteFunc(named, func(p pair) bool { return r.records[p] == nil })
	for _, p := range named {
		if rec := r.records[p]; rec.depth > 0 {
			parents = append(parents, pair{p.mark, rec.parent})
			support = append(support, r.c.edgeKey(rec.parent, p.node))
		} else {
			support = append(support, r.c.seedKey(p))
		}
	}
	if err := r.load(ctx, parents); err != nil {
		return nil, err
	}
	exist, err := r.exist(ctx, support)
	if err != nil {
		return nil, err
	}
	var roots []pair
	for i, p := range named {
		rec := r.records[p]
		parent := r.records[pair{p.mark, rec.parent}]
		if !exist[i] || rec.depth > 0 && (parent == nil || parent.depth >= rec.depth) {
			roots = append(roots, p)
		}
	}
	return roots, nil
}

// expand adds the roots to the suspects, and their children, and so on.
func (r *run) expand(ctx context.Context, roots []pair) error {
	var level []item
	for _, p := range roots {
		if s := r.suspects[p]; s != nil {
			s.root = true
			continue
		}
		r.suspects[p] = &suspect{record: *r.records[p], root: true}
		level = append(level, item{pair: p})
	}
	for len(level) > 0 {
		var next []item
		rest, err := r.neighbours(ctx, rowOut, level, func(it item, ends []string) bool {
			for _, end := range ends {
				p := pair{it.mark, end}
				rec := r.records[p]
				if rec != nil && rec.depth > 0 && rec.parent == it.node && r.suspects[p] == nil {
					r.suspects[p] = &suspect{record: *rec}
					next = append(next, item{pair: p})
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		if len(r.suspects) > maxSuspects {
			return fmt.Errorf("closure: deletions affect more than %d nodes, some of mark %q: add "+
				"the edges again, and delete edges farther from the seeds first", maxSuspects,
				level[0].mark)
		}
		level = slices.Concat(next, rest)
	}
	return nil
}

// seeds spreads from nodes of tasks, and from suspects that are seeds.
func (r *run) seeds(ctx context.Context, tasks []task) error {
	var pairs []pair
	for _, t := range tasks {
		pairs = append(pairs, pair{t.a, t.b})
	}
	if err := r.load(ctx, pairs); err != nil {
		return err
	}
	var unreached []pair
	for i, p := range pairs {
		switch {
		case r.isReached(p):
			r.front = append(r.front, item{p, tasks[i].after})
		case r.suspects[p] != nil:
			r.waiting[p] = true
		default:
			unreached = append(unreached, p)
		}
	}
	for p := range r.suspects {
		unreached = append(unreached, p)
	}
	keys := make([]percolator.CellKey, len(unreached))
	for i, p := range unreached {
		keys[i] = r.c.seedKey(p)
	}
	exist, err := r.exist(ctx, keys)
	for i, p := range unreached {
		if exist[i] && !r.isReached(p) && !r.reach(p, record{}) {
			r.left[spread] = append(r.left[spread], task{a: p.mark, b: p.node})
		}
	}
	return err
}

// follow spreads along added edges.
func (r *run) follow(ctx context.Context, tasks []task) error {
	keys := make([]percolator.CellKey, len(tasks))
	for i, t := range tasks {
		keys[i] = r.c.edgeKey(t.a, t.b)
	}
	exist, err := r.exist(ctx, keys)
	if err != nil {
		return err
	}
	var queue []task
	for i, t := range tasks {
		if exist[i] {
			queue = append(queue, t)
		}
	}
	for len(queue) > 0 && !r.full {
		if r.full = r.readEnough(); r.full {
			break
		}
		now := queue[:min(len(queue), chunk)]
		queue = queue[len(now):]
		places := make([]place, len(now))
		for i, t := range now {
			places[i] = place{t.a, t.after}
		}
		pages, err := r.pages(ctx, rowRecord, places, pageSize/len(now))
		if err != nil {
			return err
		}
		var targets []pair
		for i, t := range now {
			for _, mark := range pages[i].names {
				targets = append(targets, pair{mark, t.b})
			}
		}
		if err := r.load(ctx, targets); err != nil {
			return err
		}
		for i, t := range now {
			r.read += len(pages[i].names)
			switch {
			case !r.followed(t, pages[i].names):
				queue = append(queue, t)
			case pages[i].more:
				queue = append(queue, task{t.a, t.b, pages[i].last()})
			}
		}
	}
	r.left[added] = queue
	return nil
}

// followed spreads marks along an edge; it reports false if the run is full before the last.
func (r *run) followed(t task, marks []string) bool {
	for _, mark := range marks {
		source, target := pair{mark, t.a}, pair{mark, t.b}
		switch {
		case !r.isReached(source):
			r.waiting[source] = true
		case !r.isReached(target) && !r.reach(target, record{r.records[source].depth + 1, t.a}):
			return false
		}
	}
	return true
}

// rescue spreads to suspects from records that are not suspect.
func (r *run) rescue(ctx context.Context) error {
	var items []item
	for p := range r.suspects {
		items = append(items, item{pair: p})
	}
	for len(items) > 0 && !r.full {
		rest, err := r.neighbours(ctx, rowIn, items, func(it item, ends []string) bool {
			best := record{depth: -1}
			for _, end := range ends {
				source := pair{it.mark, end}
				if r.isReached(source) {
					if depth := r.records[source].depth + 1; best.depth < 0 || depth < best.depth {
						best = record{depth, end}
					}
				}
			}
			return r.isReached(it.pair) || best.depth < 0 || r.reach(it.pair, best)
		})
		if err != nil {
			return err
		}
		items = slices.DeleteFunc(rest, func(it item) bool { return r.isReached(it.pair) })
	}
	return nil
}

// flood spreads from all nodes that were reached, and leaves to later runs what it cannot.
func (r *run) flood(ctx context.Context) error {
	for len(r.front) > 0 && !r.full {
		level := r.front
		r.front = nil
		rest, err := r.neighbours(ctx, rowOut, level, func(it item, ends []string) bool {
			if r.full = r.readEnough(); r.full {
				return false
			}
			r.read += len(ends)
			for _, end := range ends {
				p := pair{it.mark, end}
				if !r.isReached(p) && !r.reach(p, record{r.records[it.pair].depth + 1, it.node}) {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		r.front = append(r.front, rest...)
	}
	for _, it := range r.front {
		r.left[spread] = append(r.left[spread], task{it.mark, it.node, it.after})
	}
	return nil
}

// readEnough reports whether the run has read as much as it may.
func (r *run) readEnough() bool { return r.read >= readsPerRecord*r.c.cfg.Batch }

// isReached reports whether the pair has a record that is not suspect, or a new one.
func (r *run) isReached(p pair) bool {
	s := r.suspects[p]
	return r.records[p] != nil && (s == nil || s.reached)
}

// reach gives the pair a record and spreads it; it reports false if the run is full.
func (r *run) reach(p pair, rec record) bool {
	if s := r.suspects[p]; s != nil {
		s.reached = true
	} else if r.full = r.created == r.c.cfg.Batch; r.full {
		return false
	} else {
		r.created++
	}
	r.records[p] = &rec
	r.reached = append(r.reached, p)
	r.front = append(r.front, item{pair: p})
	return true
}

// write writes the new records, and the tasks for later runs. If complete, it deletes the
// records of the suspects that were not reached. Otherwise it leaves tasks to check those of them
// that are roots, or whose parent was reached; a later run finds the others below these.
func (r *run) write(complete bool) {
	for _, p := range r.reached {
		r.c.records.Set(r.tx, tuple.Pack(rowRecord, p.node, p.mark), *r.records[p])
		if r.suspects[p] == nil {
			r.tx.Set(tuple.Pack(rowReached, p.mark, p.node), r.c.reached, nil)
		}
	}
	for p, s := range r.suspects {
		switch {
		case s.reached:
		case complete:
			r.tx.Delete(tuple.Pack(rowReached, p.mark, p.node), r.c.reached)
			r.c.records.Delete(r.tx, tuple.Pack(rowRecord, p.node, p.mark))
		default:
			if s.root || r.suspects[pair{p.mark, s.record.parent}].reached {
				r.left[check] = append(r.left[check], task{a: p.mark, b: p.node})
			}
			if r.waiting[p] {
				r.left[spread] = append(r.left[spread], task{a: p.mark, b: p.node})
			}
		}
	}
	for kind, tasks := range r.left {
		r.c.put(r.tx, kind, tasks)
	}
}
