package notifytest

import (
	"sort"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// cellIndex is a map of cells that can be walked by (table, column, row), as tablets walk
// the notify and intent groups.
type cellIndex[V any] struct {
	cells  map[mvcc.Cell]V
	sorted map[mvcc.ObservedColumn][]string // rows; rebuilt when stale
	stale  map[mvcc.ObservedColumn]bool
}

func newCellIndex[V any]() cellIndex[V] {
	return cellIndex[V]{
		cells: map[mvcc.Cell]V{}, sorted: map[mvcc.ObservedColumn][]string{}, stale: map[mvcc.ObservedColumn]bool{},
	}
}

func (x *cellIndex[V]) put(c mvcc.Cell, v V) {
	if _, there := x.cells[c]; !there {
		x.stale[mvcc.ObservedColumn{Table: c.Table, Column: c.Column}] = true
	}
	x.cells[c] = v
}

func (x *cellIndex[V]) remove(c mvcc.Cell) { delete(x.cells, c) }

// from lists, in order, the cells of a column with rows in the span. Rows that have gone
// since the last rebuild are left out.
func (x *cellIndex[V]) from(table mvcc.TableID, column string, span mvcc.Span) func(yield func(mvcc.Cell, V) bool) {
	key := mvcc.ObservedColumn{Table: table, Column: column}
	if x.stale[key] {
		var rows []string
		for c := range x.cells {
			if c.Table == table && c.Column == column {
				rows = append(rows, c.Row)
			}
		}
		sort.Strings(rows)
		x.sorted[key], x.stale[key] = rows, false
	}
	rows := x.sorted[key]
	return func(yield func(mvcc.Cell, V) bool) {
		for i := sort.SearchStrings(rows, span.Start); i < len(rows) && span.Contains(rows[i]); i++ {
			c := mvcc.Cell{Table: table, Row: rows[i], Column: column}
			if v, there := x.cells[c]; there && !yield(c, v) {
				return
			}
		}
	}
}
