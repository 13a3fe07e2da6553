package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	percolator "github.com/percolator-go/percolator"
)

// ChangeCheck applies the feed of changes to an empty map and compares it with snapshots. It
// belongs to the goroutine that reads the feed.
type ChangeCheck struct {
	// Once also reports changes that are yielded twice; without it a change may repeat earlier ones
	// of its row, as after a resumption.
	Once     bool
	cells    map[percolator.CellKey][]percolator.Change // by commit timestamp
	rows     map[string]percolator.Timestamp            // the latest change of each table's row
	resolved percolator.Timestamp
	Applied  int // changes
	Compared int // snapshots
}

// Apply applies an element of the feed.
func (c *ChangeCheck) Apply(e percolator.Change) error {
	if c.cells == nil {
		c.cells = map[percolator.CellKey][]percolator.Change{}
		c.rows = map[string]percolator.Timestamp{}
	}
	if e.Resolved != 0 {
		if e.Resolved <= c.resolved {
			return fmt.Errorf("resolved timestamp %d came after %d; they must increase", e.Resolved, c.resolved)
		}
		c.resolved = e.Resolved
		return nil
	}
	c.Applied++
	versions := c.cells[e.CellKey]
	at, known := slices.BinarySearchFunc(versions, e.CommitTS, func(v percolator.Change, ts percolator.Timestamp) int {
		switch {
		case v.CommitTS < ts:
			return -1
		case v.CommitTS > ts:
			return 1
		}
		return 0
	})
	if known {
		switch v := versions[at]; {
		case c.Once:
			return fmt.Errorf("the change of %v at %d was yielded twice", e.CellKey, e.CommitTS)
		case v.Deleted != e.Deleted || !bytes.Equal(v.Value, e.Value):
			return fmt.Errorf("the change of %v at %d was yielded as %q (deleted: %t), and again as %q (%t)", e.CellKey,
				e.CommitTS, v.Value, v.Deleted, e.Value, e.Deleted)
		}
		return nil
	}
	if e.CommitTS <= c.resolved {
		return fmt.Errorf("a change of %v at %d follows the resolved timestamp %d", e.CellKey, e.CommitTS, c.resolved)
	}
	row := e.Column.Table + "\x00" + e.Row
	if !e.Initial && e.CommitTS < c.rows[row] {
		return fmt.Errorf("a change of row %q at %d follows one at %d", e.Row, e.CommitTS, c.rows[row])
	}
	c.rows[row] = max(c.rows[row], e.CommitTS)
	c.cells[e.CellKey] = slices.Insert(versions, at, e)
	return nil
}

// Compare compares the map with a snapshot at the last resolved timestamp, and forgets versions
// that no later comparison needs.
func (c *ChangeCheck) Compare(ctx context.Context, db *percolator.DB, rows ...percolator.RowRange) error {
	snap, err := db.SnapshotAt(ctx, c.resolved)
	if err != nil {
		return err
	}
	defer snap.Close()
	want := map[percolator.CellKey]percolator.Cell{}
	for _, r := range rows {
		for cell, err := range snap.Scan(ctx, r) {
			if err != nil {
				return err
			}
			want[cell.CellKey] = cell
		}
	}
	c.Compared++
	for _, key := range slices.Collect(maps.Keys(c.cells)) {
		versions := c.cells[key]
		last := -1
		for i, v := range versions {
			if v.CommitTS <= c.resolved {
				last = i
			}
		}
		if last < 0 {
			continue
		}
		v := versions[last]
		c.cells[key] = versions[last:]
		cell, there := want[key]
		delete(want, key)
		switch {
		case v.Deleted && there:
			return fmt.Errorf("at %d, the feed has %v deleted at %d, and the snapshot has %q, committed at %d",
				c.resolved, key, v.CommitTS, cell.Value, cell.CommitTS)
		case !v.Deleted && !there:
			return fmt.Errorf("at %d, the feed has %v as %q, committed at %d, and the snapshot lacks it", c.resolved,
				key, v.Value, v.CommitTS)
		case !v.Deleted && (cell.CommitTS != v.CommitTS || !bytes.Equal(cell.Value, v.Value)):
			return fmt.Errorf("at %d, the feed has %v as %q, committed at %d, and the snapshot as %q, "+
				"committed at %d", c.resolved, key, v.Value, v.CommitTS, cell.Value, cell.CommitTS)
		}
	}
	for key, cell := range want {
		return fmt.Errorf("at %d, the feed has no version of %v, which the snapshot has at %d", c.resolved, key,
			cell.CommitTS)
	}
	return nil
}

// Saved returns the state as of the last resolved timestamp: what a subscriber stores together with
// that position, and continues from after a crash.
func (c *ChangeCheck) Saved() *ChangeCheck {
	out := &ChangeCheck{
		Once: c.Once, cells: map[percolator.CellKey][]percolator.Change{},
		rows: map[string]percolator.Timestamp{}, resolved: c.resolved,
	}
	for key, versions := range c.cells {
		for _, v := range slices.Backward(versions) {
			if v.CommitTS <= c.resolved {
				out.cells[key] = []percolator.Change{v}
				break
			}
		}
	}
	return out
}

// churned is the number of rows that Churn writes.
const churned = 30

// Churn sets and deletes cells of one to three rows, in several tablets, in transactions with and
// without reads, some of which lock one more row and so commit in two phases. It checks nothing: the
// feed of the table is checked meanwhile.
func Churn(ctx context.Context, db *percolator.DB, l Load) error {
	columns := []percolator.Column{value, step}
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		first, rows, reads := rng.IntN(churned), 1+rng.IntN(3), rng.IntN(2) == 0
		column, deletes := columns[rng.IntN(len(columns))], rng.IntN(8) == 0
		locks := rng.IntN(3) == 0
		mark := strconv.AppendUint(nil, rng.Uint64(), 36)
		err := l.db(db, worker).Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			if locks {
				tx.Lock(row("churn", (first+rows)%churned), column)
			}
			for i := range rows {
				name := row("churn", (first+i)%churned)
				if reads {
					if _, _, err := tx.Get(ctx, name, column); err != nil {
						return err
					}
				}
				if deletes {
					tx.Delete(name, column)
				} else {
					tx.Set(name, column, mark)
				}
			}
			return nil
		}, percolator.Name("churn"))
		if errors.Is(err, percolator.ErrSnapshotTooOld) { // it has outlived a short history
			return fmt.Errorf("%w: %w", percolator.ErrConflict, err)
		}
		return err
	})
}
