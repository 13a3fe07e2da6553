package memory

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// overlaid is an entry of the overlay in the model below.
type overlaid struct {
	proposal uint64
	mutation *mvcc.Mutation
}

type overlaidKey struct {
	cell mvcc.Cell
	entryKey
}

// TestOverlay: the overlay's answer for every key is the effect of the last pending proposal on it,
// with few effects on a cell and with many.
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

// TestOverlayTouches: a one-phase commit waits for any pending effect on the entries that it
// checks. Catches BROKEN=unchecked_in_flight.
func TestOverlayTouches(t *testing.T) {
	c := overlayCell(0)
	for _, m := range []mvcc.Mutation{
		{Group: mvcc.GroupWrite}, {Group: mvcc.GroupLock}, {Group: mvcc.GroupLocked},
		{Group: mvcc.GroupRollback, TS: 50},
	} {
		o := newOverlay()
		m.Cell = c
		o.add(7, []mvcc.Mutation{m})
		if got := o.touches(c, 50); got != 7 {
			t.Errorf("IN-FLIGHT: an effect on %c is of proposal %d, want 7", m.Group, got)
		}
	}
	o := newOverlay()
	o.add(7, []mvcc.Mutation{
		{Group: mvcc.GroupRollback, Cell: c, TS: 49}, {Group: mvcc.GroupHistory, Cell: c, TS: 50},
		{Group: mvcc.GroupLock, Cell: overlayCell(1)},
	})
	if got := o.touches(c, 50); got != 0 {
		t.Errorf("what does not matter is waited for: %d", got)
	}
}

// TestOverlayUnsettled: a pending lock is unsettled, and so is a pending intent or a pending
// removal of one, since the intent still exists.
func TestOverlayUnsettled(t *testing.T) {
	c := overlayCell(0)
	for name, test := range map[string]struct {
		m    mvcc.Mutation
		want bool
	}{
		"a lock comes":     {mvcc.Mutation{Group: mvcc.GroupLock, Lock: &mvcc.Lock{StartTS: 9}}, true},
		"a later one":      {mvcc.Mutation{Group: mvcc.GroupLock, Lock: &mvcc.Lock{StartTS: 10}}, false},
		"a lock goes":      {mvcc.Mutation{Group: mvcc.GroupLock, Delete: true}, false},
		"an intent comes":  {mvcc.Mutation{Group: mvcc.GroupIntent, TS: 9, Intent: &mvcc.Intent{}}, true},
		"an intent goes":   {mvcc.Mutation{Group: mvcc.GroupIntent, TS: 9, Delete: true}, true},
		"a later one goes": {mvcc.Mutation{Group: mvcc.GroupIntent, TS: 10, Delete: true}, false},
	} {
		o := newOverlay()
		test.m.Cell = c
		o.add(1, []mvcc.Mutation{test.m})
		if got := o.unsettled(10); got != test.want {
			t.Errorf("UNSETTLED: %s: %v below 10, want %v", name, got, test.want)
		}
	}
}

// TestPastLockInFlight: a transaction that began before the commit of a lock in flight conflicts
// with it. Catches BROKEN=past_lock_in_flight.
func TestPastLockInFlight(t *testing.T) {
	c, m := overlayCell(0), New(Config{})
	m.overlay.add(1, []mvcc.Mutation{
		{Group: mvcc.GroupLocked, Cell: c, Write: &mvcc.Write{CommitTS: 20, Kind: mvcc.KindLock}},
	})
	v := m.View(nil)
	for from, want := range map[mvcc.Timestamp]bool{19: true, 20: true, 21: false} {
		if w, there, err := v.PastLock(c, from); err != nil || there != want ||
			there && w.CommitTS != 20 {
			t.Errorf("PAST-LOCK: from %d on: %+v, %v, %v", from, w, there, err)
		}
	}
}
