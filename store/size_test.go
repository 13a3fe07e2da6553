package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// weighed returns a store with rows of several versions, some of them long, in table 16, and the
// bytes of each row in [b, y); there are neighbours on both sides of the range.
func weighed(t *testing.T) (s *store.Store, want map[string]uint64) {
	t.Helper()
	s = open(t, "", memTable(8<<20))
	b, want := new(store.Batch), map[string]uint64{}
	put := func(m mvcc.Mutation) {
		b.PutMutation(&m)
		key, value := store.EncodeMutation(&m)
		if row := m.Cell.Row; m.Cell.Table == 16 && row >= "b" && row < "y" && store.Weighed(key) {
			want[row] += uint64(len(key) + len(value))
		}
	}
	for i := range 40 {
		for _, c := range []mvcc.Cell{cell(fmt.Sprintf("r%02d", i), "c"), cell("a", fmt.Sprint(i)),
			cell("y", fmt.Sprint(i)), {Table: 17, Row: "r", Column: fmt.Sprint(i)}} {
			value := make([]byte, 10*i)
			w := &mvcc.Write{CommitTS: 30, StartTS: 25, Kind: mvcc.KindPut, Value: value}
			put(mvcc.Mutation{Group: mvcc.GroupWrite, Cell: c, Write: w})
			put(mvcc.Mutation{Group: mvcc.GroupHistory, Cell: c, TS: 20, Write: w})
			put(mvcc.Mutation{Group: mvcc.GroupNotify, Cell: c, Notify: &mvcc.Notify{TS: 30}})
			if i%10 == 0 && c.Row[0] == 'r' && c.Table == 16 {
				long := make([]byte, i<<15) // in several entries
				put(mvcc.Mutation{Group: mvcc.GroupData, Cell: c, TS: 15, Value: long})
			}
		}
	}
	commit(t, s, b)
	return s, want
}

// TestWeigh: weighing visits each entry of the range once, with any step, and counts long values by
// their whole length without reading them. Each weight except a call's last is at least a step.
func TestWeigh(t *testing.T) {
	s, want := weighed(t)
	snap := s.Snap()
	defer snap.Close()
	var total uint64
	for _, bytes := range want {
		total += bytes
	}
	span := mvcc.Span{Table: 16, Start: "b", End: "y", HasEnd: true}
	for _, most := range []int{1, 7, 1000} {
		for _, step := range []uint64{0, 1000, 1 << 40} {
			var sum uint64
			calls, rows := 0, map[string]uint64{}
			for place := (store.WeighPlace{}); !place.Done(); calls++ {
				weights, next, err := snap.Weigh(span, place, most, step)
				if err != nil {
					t.Fatal(err)
				}
				place = next
				if !slices.IsSortedFunc(weights, func(a, b store.Weight) int {
					return map[bool]int{true: -1, false: 1}[a.Row < b.Row]
				}) {
					t.Errorf("most %d, step %d: out of order: %v", most, step, weights)
				}
				for i, w := range weights {
					if sum, rows[w.Row] = sum+w.Bytes, rows[w.Row]+w.Bytes; w.Bytes < step &&
						i+1 < len(weights) {
						t.Errorf("most %d, step %d: %+v", most, step, w)
					}
				}
			}
			if sum != total {
				t.Errorf("most %d, step %d: %d bytes, want %d", most, step, sum, total)
			}
			if step == 0 && fmt.Sprint(rows) != fmt.Sprint(want) {
				t.Errorf("most %d: by row %v, want %v", most, rows, want)
			}
			if least := 84/most + 1; calls < min(least, 3) || calls > least+4 {
				t.Errorf("most %d: %d calls", most, calls)
			}
		}
	}
}
