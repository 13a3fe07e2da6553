package txn

import (
	"slices"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// What a transaction has read and written, for diagnosis: columns, no rows and no values. Only
// transactions with Options.Effects record it.

// maxEffects limits the columns of either kind that a transaction records.
const maxEffects = 16

// Effects are the columns that a transaction's user has read and written. Wrote includes columns
// that were notified, except by NotifyAfter.
type Effects struct {
	Read, Wrote ColumnList
	Cells       int // number of cells written
}

// ColumnList has the first columns in their order. Column "" stands for all columns, of a scan.
type ColumnList struct {
	Columns []TableColumn
	More    bool // there were more than maxEffects
}

// TableColumn names a column of a table.
type TableColumn struct{ Table, Column string }

func (l *ColumnList) add(table, column string) {
	c := TableColumn{table, column}
	switch {
	case slices.Contains(l.Columns, c):
	case len(l.Columns) == maxEffects:
		l.More = true
	default:
		l.Columns = append(l.Columns, c)
	}
}

// effectsLog collects Effects. A nil effectsLog collects none.
type effectsLog struct {
	mu          sync.Mutex
	read, wrote ColumnList
}

func (l *effectsLog) noteRead(table string, columns ...string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range columns {
		l.read.add(table, c)
	}
}

func (l *effectsLog) noteWrite(k Key, kind mvcc.Kind) {
	if l == nil || kind >= mvcc.KindLock {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote.add(k.Table, k.Column)
}

// Effects returns the reads and writes so far. Without Options.Effects it is empty.
func (t *Txn) Effects() (e Effects) {
	if t.effects == nil {
		return e
	}
	t.effects.mu.Lock()
	e.Read, e.Wrote = t.effects.read, t.effects.wrote
	t.effects.mu.Unlock()
	t.guard.Lock()
	defer t.guard.Unlock()
	for i := range t.writes {
		if w := &t.writes[i]; w.cell.Class == mvcc.ClassData && w.writes() {
			e.Cells++
		}
	}
	return e
}
