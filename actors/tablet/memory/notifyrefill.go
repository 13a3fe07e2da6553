package memory

import (
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file refills the queue of a column that has more notifications than the index keeps, from
// disk, a part of the column at a time and always behind the part before: each is read once, and
// the entries that were deleted meanwhile are passed over once.

// refillAt is the part of its room below which a queue that has lost some is refilled.
const refillAt = 4

// refilling is what a column keeps of its refills.
type refilling struct {
	next string // the row from which on the next one reads
	// changed are the rows that have changed since the one under way has its Snap; nil: there is
	// none. What it has read of them may be old.
	changed map[string]bool
}

// note takes note of a change to the row.
func (r *refilling) note(row string) {
	if r.changed != nil {
		r.changed[row] = true
	}
}

// Refill reads a part of a column's notifications from disk.
type Refill struct {
	column *notifyColumn
	key    columnKey
	span   mvcc.Span
	snap   *store.Snap
	most   int
	found  []mvcc.CellNotify
	end    bool // there are no more behind those
	err    error
}

// refill begins a refill if the column's queue has room for what it has lost.
func (m *Memory) refill(key columnKey, c *notifyColumn) {
	if c.uncounted || c.queue == nil || !c.queue.lost || c.changed != nil {
		return
	}
	have := c.queue.tree.Len()
	if have > m.cfg.Indexed/refillAt || c.pending <= have {
		return
	}
	span, here := wire.Clip(m.tablet, mvcc.Span{Table: key.Table})
	if !here {
		return
	}
	span.Start = max(span.Start, c.next)
	c.changed = map[string]bool{}
	m.cfg.Background(&Refill{
		column: c, key: key, span: span, snap: m.cfg.Store.Snap(), most: m.cfg.Indexed - have,
	})
}

// Run does the reading, on any goroutine, and closes the Snap.
func (r *Refill) Run() {
	defer r.snap.Close()
	r.end = true
	r.err = eachNotify(r.snap, r.key, r.span, func(n mvcc.CellNotify) bool {
		if r.end = len(r.found) < r.most; r.end && n.Notify.ParkedTS == 0 {
			r.found = append(r.found, n)
		}
		return r.end
	})
}

func (r *Refill) finish(m *Memory) error {
	c := r.column
	if r.err != nil || m.columns[r.key] != c {
		return r.err
	}
	changed := c.changed
	c.changed = nil
	if c.queue == nil || !c.queue.lost {
		return nil // revived meanwhile
	}
	c.next = "" // from the beginning: some may be there that came later
	for _, n := range r.found {
		if _, there := c.queue.places[n.Cell.Row]; !there && !changed[n.Cell.Row] {
			c.queue.add(n)
		}
		if !r.end {
			c.next = n.Cell.Row + "\x00"
		}
	}
	c.queue.lost = c.queue.tree.Len() != c.pending
	m.changes++
	m.refill(r.key, c)
	return nil
}
