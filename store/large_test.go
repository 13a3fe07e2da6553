package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

var errCut = errors.New("cut short")

const largeRows = 4

// largeValue is a value of several chunks, a short one, or none: the row's value in that state.
func largeValue(state, row int) []byte {
	sizes := [...]int{100, 700 << 10, 300 << 10, 0}
	return bytes.Repeat([]byte{byte('a' + state), byte('a' + row)}, sizes[(state+row)%len(sizes)]/2)
}

// largeBatch changes the rows from any state to the given one; with the smallest memtable it takes
// several Txns.
func largeBatch(state int) *store.Batch {
	b := new(store.Batch)
	for row := range largeRows {
		v := largeValue(state, row)
		b.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupRaw, Cell: cell(strconv.Itoa(row), "c"), Value: v, Delete: len(v) == 0,
		})
	}
	b.Put([]byte("k"), []byte{byte(state)})
	return b
}

// wholeState returns the state that all rows share.
func wholeState(snap *store.Snap) (int, error) {
	k, ok, err := snap.Get([]byte("k"))
	if err != nil || !ok {
		return 0, fmt.Errorf("the state's number: %v, %w", ok, err)
	}
	state := int(k[0])
	for row := range largeRows {
		want := largeValue(state, row)
		if v, ok, err := snap.Raw(cell(strconv.Itoa(row), "c")); err != nil ||
			ok != (len(want) > 0) || !bytes.Equal(v, want) {
			return 0, fmt.Errorf("in state %d row %d has %d bytes of %.2q, not %d of %.2q: %w",
				state, row, len(v), v, len(want), want, err)
		}
	}
	return state, nil
}

func wantWhole(t *testing.T, s *store.Store, when string, want int) {
	t.Helper()
	snap := s.Snap()
	defer snap.Close()
	if state, err := wholeState(snap); err != nil || state != want {
		t.Fatalf("TORN-BATCH: %s: state %d, %v", when, state, err)
	}
}

// A Batch larger than a Txn is complete after it is committed again, as its entry is when it is
// applied again, after the process has ended between any two of its Txns; and no reader sees a part
// of it before.
func TestLargeBatchCutShort(t *testing.T) {
	for cut := 1; !cutLargeBatch(t, cut); cut++ {
	}
}

// cutLargeBatch ends the process before the given Txn of a large Batch. done: there are fewer Txns.
func cutLargeBatch(t *testing.T, cut int) (done bool) {
	dir, count, during := t.TempDir(), 0, func() {}
	options := func(o *store.Options) {
		o.MemTableSize, o.ReclaimInterval, o.NoSync = 2<<20, -1, true
		store.BeforeTxn(o, func() error {
			during()
			if count--; count == 0 {
				return errCut
			}
			return nil
		})
	}
	s := open(t, dir, options)
	commit(t, s, largeBatch(0))
	during = func() { wantWhole(t, s, "a snap during the commit", 0) }
	count = cut
	err := s.StateWriter().Commit([]*store.Batch{largeBatch(1)})
	during, count = func() {}, 0
	switch {
	case err == nil && cut < 4:
		t.Fatalf("the batch takes less than %d transactions", cut)
	case err == nil:
		wantWhole(t, s, "all of it", 1)
		return true
	case !errors.Is(err, errCut):
		t.Fatal(err)
	}
	wantWhole(t, s, "a snap after the failure", 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options)
	commit(t, s, largeBatch(1))
	wantWhole(t, s, fmt.Sprintf("cut before transaction %d, and applied again", cut), 1)
	commit(t, s, largeBatch(2))
	wantWhole(t, s, "the next", 2)
	return false
}

// TestBatchesAgainstModel: batches of all sizes, several in a Commit, some interrupted, are
// compared with a map, through Snaps of all ages and after reopening. SEED= repeats one.
func TestBatchesAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("SEED=%d", seed)
	m := batchModel{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), now: map[string]string{},
	}
	m.s = open(t, m.dir, m.options)
	for range 60 {
		m.step()
	}
}

type batchModel struct {
	t   *testing.T
	rng *rand.Rand
	dir string
	s   *store.Store
	cut int // number of Txns until one fails
	now map[string]string
}

func (m *batchModel) options(o *store.Options) {
	o.MemTableSize, o.ReclaimInterval = 2<<20, -1
	store.BeforeTxn(o, func() error {
		if m.cut--; m.cut == 0 {
			return errCut
		}
		return nil
	})
}

// step commits a few batches and compares. Those of an interrupted Commit are committed again.
func (m *batchModel) step() {
	before, next := m.now, m.now
	var batches []*store.Batch
	for range 1 + m.rng.IntN(3) {
		var b *store.Batch
		b, next = m.batch(next)
		batches = append(batches, b)
	}
	old := m.s.Snap()
	if m.cut = 0; m.rng.IntN(3) == 0 {
		m.cut = 1 + m.rng.IntN(8)
	}
	err := m.s.StateWriter().Commit(batches)
	m.cut = 0
	m.same(old, before, "an old snap")
	old.Close()
	if err != nil && !errors.Is(err, errCut) {
		m.t.Fatal(err)
	}
	if err != nil {
		snap := m.s.Snap()
		m.same(snap, before, "a snap after the failure")
		snap.Close()
		m.reopen()
		commit(m.t, m.s, batches...)
	}
	m.now = next
	if m.rng.IntN(10) == 0 {
		m.reopen()
	}
	snap := m.s.Snap()
	defer snap.Close()
	m.same(snap, m.now, "a new snap")
}

func (m *batchModel) reopen() {
	if err := m.s.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.s = open(m.t, m.dir, m.options)
}

// batch returns up to 1 MiB of puts and deletes, some of one key repeatedly, and the state after
// them.
func (m *batchModel) batch(state map[string]string) (*store.Batch, map[string]string) {
	next := make(map[string]string, len(state))
	maps.Copy(next, state)
	b := new(store.Batch)
	left := 1 << m.rng.IntN(21)
	for left > 0 {
		key := "W" + strconv.Itoa(m.rng.IntN(40)) // cached, and never long
		if m.rng.IntN(2) == 0 {
			key = "D" + strconv.Itoa(m.rng.IntN(40))
		}
		size := 1 + m.rng.IntN(1<<m.rng.IntN(20))
		if key[0] == 'W' {
			size = min(size, 200<<10)
		}
		left -= size + 50
		if m.rng.IntN(4) == 0 {
			delete(next, key)
			b.Delete([]byte(key))
			continue
		}
		next[key] = string(bytes.Repeat([]byte{byte(m.rng.IntN(256))}, size))
		b.Put([]byte(key), []byte(next[key]))
	}
	return b, next
}

func (m *batchModel) same(snap *store.Snap, want map[string]string, what string) {
	if key := m.differs(snap, want); key != "" {
		m.t.Fatalf("%s differs at %s", what, key)
	}
}

// differs returns a key at which a Snap differs from the state.
func (m *batchModel) differs(snap *store.Snap, want map[string]string) string {
	for _, group := range []string{"W", "D"} {
		for i := range 40 {
			key := group + strconv.Itoa(i)
			v, ok, err := snap.Get([]byte(key))
			if err != nil {
				m.t.Fatal(err)
			}
			if w, present := want[key]; ok != present || string(v) != w {
				return key
			}
		}
	}
	return ""
}
