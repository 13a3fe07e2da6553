package store_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/store"
)

// TestSurveyOfStore: collection's walks over the disk and over the rules' model are equal, from any
// start.
func TestSurveyOfStore(t *testing.T) {
	st := open(t, "")
	m := mvcctest.NewMemView()
	rng := rand.New(rand.NewPCG(7, 11))
	rows := []string{"", "a", "a\x00", "a\x00b", "b", "bb", "\xff"}
	columns := []string{"", "x", "x\x00", "y"}
	random := func() mvcc.Cell {
		return mvcc.Cell{
			Table: mvcc.TableID(16 + rng.IntN(2)), Row: rows[rng.IntN(len(rows))],
			Column: columns[rng.IntN(len(columns))],
		}
	}
	b := &store.Batch{}
	for range 400 {
		c, ts := random(), mvcc.Timestamp(1+rng.IntN(40))
		for _, mu := range []mvcc.Mutation{
			{Group: mvcc.GroupHistory, Cell: c, TS: ts,
				Write: &mvcc.Write{CommitTS: ts, StartTS: ts - 1, Kind: mvcc.KindPut}},
			{Group: mvcc.GroupRollback, Cell: random(), TS: ts},
			{Group: mvcc.GroupNotify, Cell: random(), Notify: &mvcc.Notify{TS: ts}},
			{Group: mvcc.GroupRaw, Cell: random(), Value: []byte("v")},
			{Group: mvcc.GroupIntent, Cell: random(), TS: ts, Intent: &mvcc.Intent{Expiry: ts}},
		} {
			b.PutMutation(&mu)
			m.Apply([]mvcc.Mutation{mu})
		}
	}
	if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	snap := st.Snap()
	defer snap.Close()
	for _, span := range []mvcc.Span{
		{Table: 16}, {Table: 17, Start: "a"}, {Table: 16, Start: "a\x00", End: "bb", HasEnd: true},
		{Table: 18},
	} {
		compare(t, "H", collected(t, snap.History(span, nil)), collected(t, m.History(span, nil)))
		below := random()
		below.Table = span.Table
		compare(t, "H below", collected(t, snap.History(span, &below)),
			collected(t, m.History(span, &below)))
		compareKeys(t, snap, m, span)
		var want []mvcc.CellAt
		for _, i := range m.AllIntents() {
			if i.Cell.Table == span.Table && span.Contains(i.Cell.Row) {
				want = append(want, mvcc.CellAt{Cell: i.Cell, TS: i.StartTS})
			}
		}
		var got []mvcc.CellAt
		for i, err := range snap.AllIntents(span) {
			if err != nil || i.Intent.Expiry != i.StartTS {
				t.Fatal(i, err)
			}
			got = append(got, mvcc.CellAt{Cell: i.Cell, TS: i.StartTS})
		}
		compare(t, "I", sorted(got), sorted(want))
	}
	var cells []mvcc.CellAt
	for range 20 {
		cells = append(cells, mvcc.CellAt{Cell: random(), TS: mvcc.Timestamp(rng.IntN(30))})
	}
	slices.SortFunc(cells, func(a, b mvcc.CellAt) int { return b.Cell.Compare(a.Cell) })
	cells = slices.CompactFunc(cells, func(a, b mvcc.CellAt) bool { return a.Cell == b.Cell })
	compare(t, "H of cells", collected(t, snap.HistoryOf(cells, 25)),
		collected(t, m.HistoryOf(cells, 25)))
}

// compareKeys compares the groups that are walked by key, also resumed after each key.
func compareKeys(t *testing.T, snap *store.Snap, m *mvcctest.MemView, span mvcc.Span) {
	t.Helper()
	for _, g := range []mvcc.Group{mvcc.GroupRollback, mvcc.GroupNotify, mvcc.GroupRaw} {
		all := collected(t, snap.Keys(g, span, nil))
		compare(t, string(rune(g)), sorted(slices.Clone(all)), collected(t, m.Keys(g, span, nil)))
		for i := range all {
			compare(t, fmt.Sprintf("%c after %d", g, i), collected(t, snap.Keys(g, span, &all[i])),
				all[i+1:])
		}
	}
}

func sorted(list []mvcc.CellAt) []mvcc.CellAt {
	slices.SortFunc(list, func(a, b mvcc.CellAt) int {
		if n := a.Cell.Compare(b.Cell); n != 0 {
			return n
		}
		return int(a.TS) - int(b.TS)
	})
	return list
}

func collected[T any](t *testing.T, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var out []T
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func compare[T any](t *testing.T, what string, got, want []T) {
	t.Helper()
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}
