package memory

import (
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Refills of the queue of a column that has more notifications than the index keeps. They read
// the column from disk in consecutive parts, so that each notification is read once, and
// deleted entries are skipped once.

// refillDivisor: an incomplete queue is refilled once at most Config.Indexed/refillDivisor are
// left in it.
const refillDivisor = 4

// refilling is the state of a column's refills.
type refilling struct {
	next string // the row at which the next one begins
	// changed are the rows that have changed since the running refill opened its Snap, whose
	// entries may be outdated; nil means none is running.
	changed map[string]bool
}

// note records a change to the row for the running refill.
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
	end    bool // found reaches the end of the column
	err    error
}

// refill begins a refill if the column's queue has room for the notifications that it lacks.
func (m *Memory) refill(key columnKey, c *notifyColumn) {
	if c.uncounted || c.queue == nil || !c.queue.lost || c.changed != nil {
		return
	}
	have := c.queue.tree.Len()
	if have > m.cfg.Indexed/refillDivisor || c.pending <= have {
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

// Run reads the part, on any goroutine, and closes the Snap.
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
		return nil // the queue was started anew (revive)
	}
	c.next = "" // start over: new notifications may be before this position
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
