package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

var errCut = errors.New("cut short")

const largeRows = 4

// largeValue is a value of several chunks, or a short one, or none: what the row holds in that state.
func largeValue(state, row int) []byte {
	sizes := [...]int{100, 700 << 10, 300 << 10, 0}
	return bytes.Repeat([]byte{byte('a' + state), byte('a' + row)}, sizes[(state+row)%len(sizes)]/2)
}

// largeBatch brings the rows from whatever they are to a state; with the smallest memtable it takes several Txns.
func largeBatch(state int) *store.Batch {
	b := new(store.Batch)
	for row := range largeRows {
		v := largeValue(state, row)
		b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: cell(strconv.Itoa(row), "c"), Value: v, Delete: len(v) == 0})
	}
	b.Put([]byte("k"), []byte{byte(state)})
	return b
}

// wholeState returns the state that all rows are in.
func wholeState(snap *store.Snap) (int, error) {
	k, ok, err := snap.Get([]byte("k"))
	if err != nil || !ok {
		return 0, fmt.Errorf("the state's number: %v, %w", ok, err)
	}
	state := int(k[0])
	for row := range largeRows {
		want := largeValue(state, row)
		if v, ok, err := snap.Raw(cell(strconv.Itoa(row), "c")); err != nil || ok != (len(want) > 0) || !bytes.Equal(v, want) {
			return 0, fmt.Errorf("in state %d row %d has %d bytes of %.2q, not %d of %.2q: %w", state, row, len(v), v, len(want), want, err)
		}
	}
	return state, nil
}

func wantWhole(t *testing.T, s *store.Store, when string) int {
	t.Helper()
	snap := s.Snap()
	defer snap.Close()
	state, err := wholeState(snap)
	if err != nil {
		t.Fatalf("TORN-BATCH: %s: %v", when, err)
	}
	if n := store.CountPrefix(snap, "u"); n != 0 {
		t.Fatalf("%s: the marker stands", when)
	}
	return state
}

// A Batch larger than a Txn is all there or not at all when the process ends between any two of its Txns, and again when
// it ends between any two of those that undo it; and nobody reads a part of it before. Catches BROKEN=unmarked_batch.
func TestLargeBatchCutShort(t *testing.T) {
	state, done := 0, false
	for cut := 1; !done; cut++ {
		var now int
		now, done = cutLargeBatch(t, cut%2 == 0, cut)
		if now < state || cut < 3 && now != 0 {
			t.Fatalf("cut before transaction %d there is state %d, with less %d", cut, now, state)
		}
		state = now
	}
	if state != 1 {
		t.Error("a commit that returned left nothing")
	}
}

// cutLargeBatch ends the process before that Txn of a large Batch, and again while it is undone. It returns the state that is
// left; done: there are not as many Txns.
func cutLargeBatch(t *testing.T, separate bool, cut int) (state int, done bool) {
	dir, count, during := t.TempDir(), 0, func() {}
	options := func(o *store.Options) {
		o.MemTableSize, o.ReclaimInterval, o.SeparateLog, o.NoSync = 2<<20, -1, separate, true
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
	during = func() {
		snap := s.Snap()
		defer snap.Close()
		if state, err := wholeState(snap); err != nil || state != 0 {
			t.Errorf("TORN-BATCH: a snap during the commit: state %d, %v", state, err)
		}
	}
	count = cut
	err := s.StateWriter().Commit([]*store.Batch{largeBatch(1)})
	during, count = func() {}, 0
	if done = err == nil; !done && !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if err != nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = reopenCut(t, dir, options, &count)
	}
	state = wantWhole(t, s, fmt.Sprintf("cut before transaction %d", cut))
	commit(t, s, largeBatch(2))
	if got := wantWhole(t, s, "the next"); got != 2 {
		t.Errorf("after the next batch: state %d", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return state, done
}

// reopenCut opens a store again and again, each time with more Txns before the end, until what it has to undo is undone.
func reopenCut(t *testing.T, dir string, options func(*store.Options), count *int) *store.Store {
	t.Helper()
	for undo := 1; ; undo += 3 {
		o := store.Options{Dir: dir}
		options(&o)
		*count = undo
		s, err := store.Open(o)
		*count = 0
		if err == nil {
			t.Cleanup(func() { _ = s.Close() }) // the second time, as a rule
			return s
		}
		if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
	}
}

// TestBatchesAgainstModel: batches of all sizes, several in a Commit, some cut short, read as a map does, from Snaps of all
// ages and after reopening. SEED= repeats one.
func TestBatchesAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("SEED=%d", seed)
	m := batchModel{t: t, rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), now: map[string]string{}}
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
	cut int // Txns until one fails
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

// step commits a few batches and compares. A Commit that was cut short has left the first of them.
func (m *batchModel) step() {
	states := []map[string]string{m.now}
	var batches []*store.Batch
	for range 1 + m.rng.IntN(3) {
		b, next := m.batch(states[len(states)-1])
		batches, states = append(batches, b), append(states, next)
	}
	old, before := m.s.Snap(), m.now
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
	m.now = states[len(states)-1]
	if err != nil {
		m.reopen()
		snap := m.s.Snap()
		defer snap.Close()
		for i := len(states) - 1; i >= 0; i-- {
			if m.now = states[i]; m.differs(snap, states[i]) == "" {
				return
			}
		}
		m.t.Fatalf("TORN-BATCH: after a cut none of the %d states is there; from the first differs %s", len(states), m.differs(snap, states[0]))
	}
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

// batch is up to a mebibyte of puts and deletes, some of one key more than once, and what it makes of a state.
func (m *batchModel) batch(state map[string]string) (*store.Batch, map[string]string) {
	next := make(map[string]string, len(state))
	for k, v := range state {
		next[k] = v
	}
	b := new(store.Batch)
	left := 1 << m.rng.IntN(21)
	for left > 0 {
		key := "W" + strconv.Itoa(m.rng.IntN(40)) // kept in memory, and never long
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

// differs returns a key at which a Snap is not what it should be.
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
