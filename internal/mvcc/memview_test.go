package mvcc_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// TestWalksOfAColumn: a walk of notify entries or of weak intents returns those of its column, by
// row and from a row on, as a store's does; that of notify entries may begin behind the row.
func TestWalksOfAColumn(t *testing.T) {
	cell := func(table mvcc.TableID, row, column string) mvcc.Cell {
		return mvcc.Cell{Table: table, Row: row, Column: column}
	}
	view := mvcctest.NewMemView()
	for _, c := range []mvcc.Cell{
		cell(16, "d", "x"), cell(16, "b", "x"), cell(16, "b", "y"), cell(16, "c", "x"),
		cell(16, "a", "x"), cell(17, "b", "x"),
	} {
		view.Apply([]mvcc.Mutation{
			{Group: mvcc.GroupNotify, Cell: c, TS: 5, Notify: &mvcc.Notify{TS: 5}},
			{Group: mvcc.GroupIntent, Cell: c, TS: 9, Intent: &mvcc.Intent{}},
			{Group: mvcc.GroupIntent, Cell: c, TS: 7, Intent: &mvcc.Intent{}},
		})
	}
	notifies := func(from string, after bool) []string {
		return walked(t, view.Notifies(mvcc.ObservedColumn{Table: 16, Column: "x"}, from, after),
			func(n mvcc.CellNotify) string { return n.Cell.Row })
	}
	intents := func(from string) []string {
		return walked(t, view.Intents(16, "x", from), func(i mvcc.CellIntent) string {
			return i.Cell.Row + map[mvcc.Timestamp]string{7: "7", 9: "9"}[i.StartTS]
		})
	}
	for _, tc := range []struct {
		what      string
		got, want []string
	}{
		{"notify entries", notifies("", false), []string{"a", "b", "c", "d"}},
		{"notify entries from b", notifies("b", false), []string{"b", "c", "d"}},
		{"notify entries behind b", notifies("b", true), []string{"c", "d"}},
		{"notify entries behind d", notifies("d", true), nil},
		{"intents", intents(""), []string{"a7", "a9", "b7", "b9", "c7", "c9", "d7", "d9"}},
		{"intents from c", intents("c"), []string{"c7", "c9", "d7", "d9"}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, tc.got, tc.want)
		}
	}
}

// walked lists the names of a walk's entries.
func walked[E any](t *testing.T, walk iter.Seq2[E, error], name func(E) string) (names []string) {
	t.Helper()
	for e, err := range walk {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name(e))
	}
	return names
}
