package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// putWrite adds a record with the timestamp to the batch.
func putWrite(b *store.Batch, c mvcc.Cell, at mvcc.Timestamp) {
	b.PutMutation(&mvcc.Mutation{
		Group: mvcc.GroupWrite, Cell: c, Write: &mvcc.Write{CommitTS: at, StartTS: at - 1, Kind: mvcc.KindPut},
	})
}

// TestAscentAgainstModel: announced lookups of cells that are written, superseded and deleted return
// the records as of the Snap's opening, in ascending order or not. SEED= repeats one. Catches
// BROKEN=ascent_backward.
func TestAscentAgainstModel(t *testing.T) {
	rng := seeded(t)
	s := open(t, "")
	store.ShrinkHotCells(s, 1) // nearly all lookups reach Badger
	const cells = 300
	at := func(i int) mvcc.Cell { return cell(fmt.Sprintf("r%03d", i/3), fmt.Sprint("c", i%3)) }
	now := map[int]mvcc.Timestamp{}
	write := func(ts mvcc.Timestamp) {
		b := new(store.Batch)
		for range 1 + rng.IntN(60) {
			i := rng.IntN(cells)
			if rng.IntN(3) == 0 {
				b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupWrite, Cell: at(i), Delete: true})
				delete(now, i)
				continue
			}
			putWrite(b, at(i), ts)
			now[i] = ts
		}
		commit(t, s, b)
	}
	for round := range mvcc.Timestamp(100) {
		write(2*round + 2)
		want, snap := maps.Clone(now), s.Snap()
		write(2*round + 3) // which the Snap does not see
		if round%16 == 15 {
			if err := store.Compact(s); err != nil {
				t.Fatal(err)
			}
		}
		which := make([]int, 40)
		first, width := rng.IntN(cells), 1+rng.IntN(cells)
		for i := range which {
			which[i] = (first + rng.IntN(width)) % cells
		}
		if slices.Sort(which); rng.IntN(8) == 0 {
			slices.Reverse(which[:20])
		}
		snap.Ascend(len(which))
		for _, i := range which {
			w, ok, err := snap.Newest(at(i))
			if err != nil {
				t.Fatal(err)
			}
			if ts, there := want[i]; ok != there || w.CommitTS != ts {
				t.Fatalf("ASCENT: cell %d has a record: %v, at %d; want %v, at %d", i, ok, w.CommitTS, there, ts)
			}
		}
		snap.Close()
	}
}

// BenchmarkAscent looks up the records of 32 and 128 cells: of rows behind all others (distance 0), of
// adjacent rows, every second of which exists (1), and of rows far apart (500).
func BenchmarkAscent(b *testing.B) {
	for _, distance := range []int{0, 1, 500} {
		for _, cells := range []int{32, 128} {
			for _, announced := range []bool{false, true} {
				b.Run(fmt.Sprintf("distance %d/%d cells/announced %v", distance, cells, announced), func(b *testing.B) {
					s := open(b, "")
					store.ShrinkHotCells(s, 1)
					for i := 0; i < 200_000; i += 1000 {
						batch := new(store.Batch)
						for j := range 1000 {
							putWrite(batch, cell(fmt.Sprintf("r%08d", 2*(i+j)), "c"), 7)
						}
						commit(b, s, batch)
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						snap := s.Snap()
						if announced {
							snap.Ascend(cells)
						}
						for j := range cells {
							row := i%1000 + distance*j
							if distance == 0 {
								row = 1_000_000 + j
							}
							if _, _, err := snap.Newest(cell(fmt.Sprintf("r%08d", row), "c")); err != nil {
								b.Fatal(err)
							}
						}
						snap.Close()
					}
				})
			}
		}
	}
}
