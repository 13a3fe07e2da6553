package index

import (
	"context"
	"strings"
	"sync"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// Bounds of what is read ahead of the runs of a batch: the cells of one prefix, and the rows that are
// looked up.
const (
	maxAhead   = 256
	maxLookups = 1024
)

// ahead has the cells of prefixes that were scanned before the runs of a batch, all of each.
type ahead map[prefix][]percolator.Cell

type prefix struct {
	rows string
	col  percolator.Column
}

// readAhead scans what each run of the batch will scan of its row, all rows at once, and then looks up
// the rows found: that result stays in the transaction's cache. One after the other the runs would wait
// for each of their messages. No run of the observer writes the column scanned.
func (o observer) readAhead(ctx context.Context, t tx, changes []percolator.Notification) (ahead, error) {
	if o.scans == (percolator.Column{}) || len(changes) == 1 {
		return nil, nil
	}
	found, errs := make([][]percolator.Cell, len(changes)), make([]error, len(changes))
	var all sync.WaitGroup
	for i, n := range changes {
		all.Go(func() { found[i], errs[i] = t.few(ctx, schema.Prefix(n.Row), o.scans) })
	}
	all.Wait()
	read := ahead{}
	var keys []percolator.CellKey
	for i, n := range changes {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if found[i] == nil {
			continue
		}
		read[prefix{schema.Prefix(n.Row), o.scans}] = found[i]
		for _, c := range found[i] {
			_, row, _ := strings.Cut(c.Row, " ")
			keys = append(keys, percolator.CellKey{Row: row, Column: o.looksUp})
		}
	}
	if o.looksUp == (percolator.Column{}) || len(keys) == 0 || len(keys) > maxLookups {
		return read, nil
	}
	_, err := t.GetMulti(ctx, keys...)
	return read, err
}

// few returns the cells of the prefix, or nil if there are more than maxAhead.
func (t tx) few(ctx context.Context, rows string, col percolator.Column) ([]percolator.Cell, error) {
	cells := []percolator.Cell{}
	for c, err := range t.Prefix(ctx, rows, col) {
		if err != nil {
			return nil, err
		}
		if len(cells) == maxAhead {
			return nil, nil
		}
		cells = append(cells, c)
	}
	return cells, nil
}
