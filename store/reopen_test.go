package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// covered and written describe tablet 3 in the store of a crash: entries up to covered are in a
// checkpoint, those up to written are not.
const covered, written = 13, 18

// crashing returns a store that can be reopened as after a crash. Each entry sets its own key and
// the key "key newest", and an odd one deletes the key of the previous odd one.
func crashing(t *testing.T) *store.Store {
	t.Helper()
	s := open(t, "", memTable(1<<20), func(o *store.Options) { o.Crashes = true })
	beginAt(t, s, 3, 10)
	for index := uint64(11); index <= written; index++ {
		appendTo(t, s, 3, run(store.InitialTerm, index, index), hard(store.InitialTerm, index))
		b := effectsOf(3, index, []byte("value"))
		b.Put([]byte("key newest"), strconv.AppendUint(nil, index, 10))
		if index%2 == 1 {
			b.Delete(fmt.Appendf(nil, "key 3.%d", index-2))
		}
		commit(t, s, b)
		if index == covered {
			if err := s.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// reopen opens s as after a crash.
func reopen(t *testing.T, s *store.Store, dice *rand.Rand) *store.Store {
	t.Helper()
	n, err := s.Reopen(dice)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// entriesIn returns the store's values of the entries' keys.
func entriesIn(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	snap := s.Snap()
	defer snap.Close()
	out := map[string]string{}
	keys := [][]byte{[]byte("key newest")}
	for index := 9; index <= written; index++ {
		keys = append(keys, fmt.Appendf(nil, "key 3.%d", index))
	}
	for _, key := range keys {
		v, ok, err := snap.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			out[string(key)] = string(v)
		}
	}
	return out
}

// wantLog checks that the log is complete and the tablet is at its checkpoint.
func wantLog(t *testing.T, s *store.Store, when string) {
	t.Helper()
	wantFigures(t, s, 3, covered, when)
	if last, err := openLog(t, s, 3).LastIndex(); last != written || err != nil {
		t.Errorf("%s: the log ends at %d, %v", when, last, err)
	}
}

// TestReopenOfAKilledProcess: everything written is present, and later writes to one of the two
// stores are not in the other.
func TestReopenOfAKilledProcess(t *testing.T) {
	s := crashing(t)
	n := reopen(t, s, nil)
	wantLog(t, n, "killed")
	had := entriesIn(t, s)
	if got := entriesIn(t, n); fmt.Sprint(got) != fmt.Sprint(had) || got["key newest"] != "18" {
		t.Errorf("found %v, want %v", got, had)
	}
	for i, of := range []*store.Store{s, n} {
		b := new(store.Batch)
		b.Put([]byte("key newest"), fmt.Append(nil, i))
		commit(t, of, b)
	}
	if a, b := entriesIn(t, s)["key newest"], entriesIn(t, n)["key newest"]; a != "0" || b != "1" {
		t.Errorf("they share what they write: %s, %s", a, b)
	}
}

// TestReopenAfterPowerLoss: the data covered by a checkpoint has survived, and any part of the
// rest, on which tests of users of a store rely; a second loss loses no more than the first.
func TestReopenAfterPowerLoss(t *testing.T) {
	s := crashing(t)
	all := fmt.Sprint(entriesIn(t, s))
	none := fmt.Sprint(map[string]string{"key newest": "13", "key 3.10": "begin", "key 3.12": "value",
		"key 3.13": "value"})
	seen, dice := map[string]bool{}, rand.New(rand.NewPCG(1, 2))
	for loss := 0; loss < 100 && len(seen) < 3; loss++ {
		n := reopen(t, s, dice)
		wantLog(t, n, fmt.Sprint("loss ", loss))
		got := entriesIn(t, n)
		newest, err := strconv.Atoi(got["key newest"])
		if err != nil || newest < covered || newest > written {
			t.Errorf("loss %d: the newest is %q", loss, got["key newest"])
		}
		if _, there := got["key 3.11"]; there || got["key 3.12"] != "value" {
			t.Errorf("loss %d: of what the checkpoint covers is left: %v", loss, got)
		}
		switch fmt.Sprint(got) {
		case all:
			seen["everything"] = true
		case none:
			seen["nothing"] = true
		}
		for index := newest + 1; index <= written; index++ {
			if _, there := got[fmt.Sprint("key 3.", index)]; there {
				seen["a hole"] = true
			}
		}
		again := reopen(t, n, dice)
		if left := entriesIn(t, again); fmt.Sprint(left) != fmt.Sprint(got) {
			t.Errorf("loss %d: a second loss leaves %v of %v", loss, left, got)
		}
	}
	if len(seen) < 3 {
		t.Errorf("of 100 losses there were only: %v", seen)
	}
}

// TestReopenIsForTests: a store that does not record what a crash may leave returns an error.
func TestReopenIsForTests(t *testing.T) {
	for name, s := range map[string]*store.Store{
		"on disk": open(t, t.TempDir()), "in memory, without crashes": open(t, "", memTable(1<<20)),
	} {
		if n, err := s.Reopen(nil); err == nil {
			t.Errorf("%s: it is opened again", name)
			_ = n.Close()
		}
	}
}
