package store_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// putRaw commits the value of a raw cell; an empty one deletes it.
func putRaw(t testing.TB, s *store.Store, c mvcc.Cell, value string) {
	t.Helper()
	b := new(store.Batch)
	b.PutMutation(&mvcc.Mutation{
		Group: mvcc.GroupRaw, Cell: c, Value: []byte(value), Delete: value == "",
	})
	commit(t, s, b)
}

func raw(t testing.TB, snap *store.Snap, c mvcc.Cell) string {
	t.Helper()
	v, ok, err := snap.Raw(c)
	if err != nil {
		t.Fatal(err)
	}
	if ok != (len(v) > 0) {
		t.Fatalf("found: %v, %d bytes", ok, len(v))
	}
	return string(v)
}

// A value that an old Snap finds on disk is not cached for newer ones, which have seen an
// overwrite. Catches BROKEN=stale_hot.
func TestOldSnapLeavesNothingBehind(t *testing.T) {
	s := open(t, "")
	c := cell("r", "c")
	for _, overwrite := range []string{"new", ""} {
		putRaw(t, s, c, "old")
		old := s.Snap()
		putRaw(t, s, c, overwrite)
		if got := raw(t, old, c); got != "old" {
			t.Errorf("the old snap reads %q", got)
		}
		snap := s.Snap()
		if got := raw(t, snap, c); got != overwrite {
			t.Errorf("STALE-CELL: a snap after the write of %q reads %q", overwrite, got)
		}
		snap.Close()
		old.Close()
	}
}

// seeded returns a random generator with the seed SEED, or a logged one.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestSnapsAgainstModel: many Snaps, old and new, read cells that are written, deleted and made too
// long to be cached; each returns the value at its opening. SEED= repeats one.
func TestSnapsAgainstModel(t *testing.T) {
	rng := seeded(t)
	s := open(t, "")
	store.ShrinkHotCells(s, 16) // slots for 32 cells: they evict one another
	now := map[string]string{}
	type view struct {
		snap *store.Snap
		want map[string]string
	}
	var views []view
	for i := range 20_000 {
		row := fmt.Sprint(rng.IntN(32))
		switch n := rng.IntN(10); {
		case n < 2:
			now[row] = strings.Repeat(fmt.Sprint(i), 1+rng.IntN(2)*rng.IntN(200))
			putRaw(t, s, cell(row, "c"), now[row])
		case n < 3:
			delete(now, row)
			putRaw(t, s, cell(row, "c"), "")
		case n < 4 && len(views) < 6:
			want := map[string]string{}
			maps.Copy(want, now)
			views = append(views, view{s.Snap(), want})
		case n < 5 && len(views) > 0:
			at := rng.IntN(len(views))
			views[at].snap.Close()
			views = append(views[:at], views[at+1:]...)
		case len(views) > 0:
			v := views[rng.IntN(len(views))]
			if got := raw(t, v.snap, cell(row, "c")); got != v.want[row] {
				t.Fatalf("step %d: the snap at %d reads %.20q, not %.20q", i, v.snap.Sequence(),
					got, v.want[row])
			}
		}
	}
	for _, v := range views {
		v.snap.Close()
	}
}

// TestSnapsSeeNewestUnderWrites: while one cell is overwritten by increasing numbers, no Snap shows
// less than was acknowledged before it was opened, and none changes.
func TestSnapsSeeNewestUnderWrites(t *testing.T) {
	s := open(t, "")
	c := cell("r", "c")
	putRaw(t, s, c, "1")
	var acknowledged atomicMax
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := acknowledged.load()
				snap := s.Snap()
				first, _, err1 := snap.Raw(c)
				second, _, err2 := snap.Raw(c)
				snap.Close()
				n, err3 := strconv.ParseUint(string(first), 10, 64)
				if err1 != nil || err2 != nil || err3 != nil || n < least ||
					string(first) != string(second) {
					t.Errorf("STALE-CELL: %q, then %q, after %d was acknowledged: %v, %v, %v",
						first, second, least, err1, err2, err3)
					return
				}
			}
		})
	}
	for i := uint64(2); i < 5_000 && !t.Failed(); i++ {
		putRaw(t, s, c, fmt.Sprint(i))
		acknowledged.store(i)
	}
	close(stop)
	wg.Wait()
}
