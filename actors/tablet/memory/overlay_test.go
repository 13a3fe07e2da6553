package memory

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// overlaid is an entry of the overlay as the model below keeps it.
type overlaid struct {
	proposal uint64
	mutation *mvcc.Mutation
}

type overlaidKey struct {
	cell mvcc.Cell
	entryKey
}

// TestOverlay: what the overlay says of every key is what the last proposal still there
// has done to it, with few effects on a cell and with many.
func TestOverlay(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o, model := newOverlay(), map[overlaidKey]overlaid{}
		inflight := map[uint64][]mvcc.Mutation{}
		for number := uint64(1); number < 400; number++ {
			muts := make([]mvcc.Mutation, rng.IntN(6))
			for i := range muts {
				muts[i] = randomMutation(rng)
				k := overlaidKey{muts[i].Cell, entryKey{muts[i].Group, muts[i].TS}}
				model[k] = overlaid{number, &muts[i]}
			}
			o.add(number, muts)
			inflight[number] = muts
			if len(inflight) > 30 {
				for ended := range inflight { // any of them
					o.drop(ended, inflight[ended])
					maps.DeleteFunc(model, func(_ overlaidKey, e overlaid) bool {
						return e.proposal == ended
					})
					delete(inflight, ended)
					break
				}
			}
			compareOverlay(t, o, model)
		}
		for number, muts := range inflight {
			o.drop(number, muts)
		}
		if len(o.cells) != 0 || o.found != nil {
			t.Errorf("seed %d: %d cells are left", seed, len(o.cells))
		}
	}
}

func randomMutation(rng *rand.Rand) mvcc.Mutation {
	m := mvcc.Mutation{
		Group: mvcc.GroupWrite, Cell: overlayCell(rng.IntN(3)), Delete: rng.IntN(4) == 0,
	}
	if rng.IntN(2) == 0 {
		m.Group, m.TS = mvcc.GroupHistory, mvcc.Timestamp(rng.IntN(40))
	}
	return m
}

func overlayCell(n int) mvcc.Cell {
	return mvcc.Cell{Table: 16, Row: string(rune('a' + n)), Column: "c"}
}

func compareOverlay(t *testing.T, o *overlay, model map[overlaidKey]overlaid) {
	t.Helper()
	for n := range 3 {
		c := overlayCell(n)
		for ts := range mvcc.Timestamp(40) {
			for _, g := range []mvcc.Group{mvcc.GroupWrite, mvcc.GroupHistory} {
				if g == mvcc.GroupWrite && ts != 0 {
					continue
				}
				want, there := model[overlaidKey{c, entryKey{g, ts}}]
				if got, ok := o.get(g, c, ts); ok != there || got != want.mutation {
					t.Fatalf("%c %q at %d: %v %v, not %v %v", g, c.Row, ts, got, ok, want.mutation,
						there)
				}
			}
		}
		if got := o.touches(c, 50); got != model[overlaidKey{c,
			entryKey{mvcc.GroupWrite, 0}}].proposal {
			t.Fatalf("%q is touched by %d", c.Row, got)
		}
	}
}
