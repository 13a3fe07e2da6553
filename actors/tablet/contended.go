package tablet

import (
	"cmp"
	"slices"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// maxContended is the maximum number of rows counted.
const maxContended = 64

// Contended counts, per row, the mutations of all of a node's replicas that were refused
// because of a conflict or a lock, since the node started. It keeps the rows with the
// highest counts: a new row replaces the row with the lowest count and inherits that count,
// so that a recurring row stays (Metwally's Space-Saving). Tablets add in their turns, only
// when they refuse an operation. It is safe for concurrent use.
type Contended struct {
	mu   sync.Mutex
	rows map[contendedAt]*ContendedRow
}

type contendedAt struct {
	table mvcc.TableID
	row   string
}

// ContendedRow contains the counts of one row. Sum exceeds the true count by at most AtMost.
type ContendedRow struct {
	Table             mvcc.TableID
	Row               string
	Conflicts, Locked uint64
	AtMost            uint64
}

// Sum returns the sum of both counts.
func (r *ContendedRow) Sum() uint64 { return r.Conflicts + r.Locked }

// observe counts the result if it is a conflict or a lock.
func (c *Contended) observe(r mvcc.Result) {
	var at mvcc.Cell
	switch {
	case r.Status == mvcc.StatusConflict:
		at = r.ConflictAt
	case r.Status == mvcc.StatusLocked && len(r.Locks) > 0:
		at = r.Locks[0].Cell
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	row := c.row(contendedAt{at.Table, at.Row})
	if r.Status == mvcc.StatusConflict {
		row.Conflicts++
	} else {
		row.Locked++
	}
}

// row returns the row's counts, which may be inherited from the row that it replaces.
func (c *Contended) row(at contendedAt) *ContendedRow {
	if row := c.rows[at]; row != nil {
		return row
	}
	row := &ContendedRow{Table: at.table, Row: at.row}
	if c.rows == nil {
		c.rows = map[contendedAt]*ContendedRow{}
	}
	if len(c.rows) == maxContended {
		var least contendedAt
		for k, r := range c.rows {
			if c.rows[least] == nil || r.Sum() < c.rows[least].Sum() {
				least = k
			}
		}
		row.Conflicts, row.Locked = c.rows[least].Conflicts, c.rows[least].Locked
		row.AtMost = row.Sum()
		delete(c.rows, least)
	}
	c.rows[at] = row
	return row
}

// Read returns the rows, highest count first.
func (c *Contended) Read() []ContendedRow {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]ContendedRow, 0, len(c.rows))
	for _, r := range c.rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b ContendedRow) int {
		return cmp.Or(cmp.Compare(b.Sum(), a.Sum()), cmp.Compare(a.Row, b.Row))
	})
	return out
}
