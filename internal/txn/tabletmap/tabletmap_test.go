package tabletmap

import (
	"math/rand/v2"
	"slices"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestHeals: a map fed with descriptors of any age, in any order, never holds an overlap,
// and prefers the newest: random histories of splits.
func TestHeals(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now := []*pb.TabletDescriptor{{TabletId: 1, Epoch: 1, StartTable: 16, EndUnbounded: true}}
		all := slices.Clone(now)
		for id := uint64(2); id < 20; id++ {
			i := rng.IntN(len(now))
			at := wire.Position{
				Table: 16, Row: string([]byte{byte(rng.IntN(256)), byte(rng.IntN(256))}),
			}
			if !wire.Holds(now[i], at) || wire.StartOf(now[i]) == at {
				continue
			}
			d := now[i]
			left := &pb.TabletDescriptor{
				TabletId: d.TabletId, Epoch: d.Epoch + 1 + uint64(rng.IntN(3)),
				StartTable: d.StartTable, StartRow: d.StartRow,
				EndTable: 16, EndRow: []byte(at.Row),
			}
			right := &pb.TabletDescriptor{
				TabletId: id, Epoch: left.Epoch, StartTable: 16, StartRow: []byte(at.Row),
				EndTable: d.EndTable, EndRow: d.EndRow, EndUnbounded: d.EndUnbounded,
			}
			now = slices.Replace(now, i, i+1, left, right)
			all = append(all, left, right)
		}
		m := New(1000)
		for range 60 {
			m.Insert(all[rng.IntN(len(all))])
			checkMap(t, m)
		}
		m.Insert(now...)
		if got := m.load(); !slices.Equal(got, now) {
			t.Fatalf("seed %d: not healed: %d tablets, want %d", seed, len(got), len(now))
		}
		for _, d := range all {
			m.Insert(d)
		}
		if got := m.load(); !slices.Equal(got, now) {
			t.Fatalf("seed %d: an old descriptor returned", seed)
		}
	}
}

func checkMap(t *testing.T, m *Map) {
	t.Helper()
	list := m.load()
	for i, d := range list {
		if found := m.Find(wire.StartOf(d)); found != d {
			t.Fatalf("Find does not find tablet %d", d.TabletId)
		}
		end, bounded := wire.EndOf(d)
		if bounded && m.FindBefore(end) != d {
			t.Fatalf("FindBefore does not find tablet %d", d.TabletId)
		}
		if i+1 < len(list) && (!bounded || wire.StartOf(list[i+1]).Less(end)) {
			t.Fatalf("tablets %d and %d overlap", d.TabletId, list[i+1].TabletId)
		}
	}
}

// TestBounded: a full map is emptied.
func TestBounded(t *testing.T) {
	m := New(4)
	for i := range 100 {
		m.Insert(&pb.TabletDescriptor{
			TabletId: uint64(i), StartTable: 16, StartRow: []byte{byte(i)}, EndTable: 16,
			EndRow: []byte{byte(i + 1)},
		})
		if n := len(m.load()); n > 4 || n == 0 {
			t.Fatalf("%d descriptors", n)
		}
	}
}
