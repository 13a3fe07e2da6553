package txn

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestTabletMapHeals: a map fed with descriptors of any age, in any order, never holds an overlap,
// and prefers the newest: random histories of splits.
func TestTabletMapHeals(t *testing.T) {
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
		m := tabletMap{max: 1000}
		for range 60 {
			m.insert(all[rng.IntN(len(all))])
			checkMap(t, &m)
		}
		m.insert(now...)
		if got := m.load(); !slices.Equal(got, now) {
			t.Fatalf("seed %d: not healed: %d tablets, want %d", seed, len(got), len(now))
		}
		for _, d := range all {
			m.insert(d)
		}
		if got := m.load(); !slices.Equal(got, now) {
			t.Fatalf("seed %d: an old descriptor returned", seed)
		}
	}
}

func checkMap(t *testing.T, m *tabletMap) {
	t.Helper()
	list := m.load()
	for i, d := range list {
		if found := m.find(wire.StartOf(d)); found != d {
			t.Fatalf("find does not find tablet %d", d.TabletId)
		}
		end, bounded := wire.EndOf(d)
		if bounded && m.findBefore(end) != d {
			t.Fatalf("findBefore does not find tablet %d", d.TabletId)
		}
		if i+1 < len(list) && (!bounded || wire.StartOf(list[i+1]).Less(end)) {
			t.Fatalf("tablets %d and %d overlap", d.TabletId, list[i+1].TabletId)
		}
	}
}

// TestTabletMapBounded: a full map is emptied.
func TestTabletMapBounded(t *testing.T) {
	m := tabletMap{max: 4}
	for i := range 100 {
		m.insert(&pb.TabletDescriptor{
			TabletId: uint64(i), StartTable: 16, StartRow: []byte{byte(i)}, EndTable: 16,
			EndRow: []byte{byte(i + 1)},
		})
		if n := len(m.load()); n > 4 || n == 0 {
			t.Fatalf("%d descriptors", n)
		}
	}
}

// TestRowBelow: no row lies between a row and the one below it.
func TestRowBelow(t *testing.T) {
	for row, want := range map[string]string{"b": "a\xff\xff", "b\x00": "b", "\x01": "\x00\xff\xff",
		"ab\x01": "ab\x00", "\x00": ""} {
		if got := rowBelow(row, 3); got != want {
			t.Errorf("below %q: %q, want %q", row, got, want)
		}
	}
}

// TestBackoff: the wait before an attempt grows, with jitter, up to the maximum.
func TestBackoff(t *testing.T) {
	var b backoff
	for _, n := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 100, 100} {
		full := n * time.Millisecond
		if d := b.next(); d < full/2 || d > full {
			t.Errorf("%v, want %v to %v", d, full/2, full)
		}
	}
}
