package sicheck

import (
	"testing"
)

// TestCorrectStoreIsNeverAccused: no false alarm.
func TestCorrectStoreIsNeverAccused(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		if found := Check(run(seed, none, 200)); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found[0])
		}
	}
}

// TestEveryBugIsCaught: each seeded bug of the toy store is found in all except a few histories.
func TestEveryBugIsCaught(t *testing.T) {
	seeds := 50
	if testing.Short() {
		seeds = 10
	}
	for _, b := range bugs {
		t.Run(string(b), func(t *testing.T) {
			caught := 0
			kinds := map[Kind]int{}
			for seed := range seeds {
				found := Check(run(uint64(seed), b, 300))
				if len(found) > 0 {
					caught++
					kinds[found[0].Kind]++
				}
			}
			if caught < seeds*9/10 {
				t.Errorf("caught in %d of %d histories", caught, seeds)
			}
			t.Logf("%d of %d: %v", caught, seeds, kinds)
		})
	}
}

// TestSmallHistories has one hand-written history for each rule.
func TestSmallHistories(t *testing.T) {
	done := func(id int, began, ended int64, ops ...Op) Txn {
		return Txn{ID: id, Began: began, Ended: ended, Ops: ops}
	}
	with := func(t Txn, o Outcome) Txn { t.Outcome = o; return t }
	a1, b1, b2 := Append("a", 1), Append("b", 1), Append("b", 2)
	for _, c := range []struct {
		name string
		h    []Txn
		want Kind // empty: no violation
	}{
		{"write skew is allowed", []Txn{
			done(1, 1, 10, Read("a"), b1), done(2, 1, 10, Read("b"), a1),
		}, ""},
		{"lost update", []Txn{
			done(1, 1, 10, Read("a"), Append("a", 1)), done(2, 1, 10, Read("a"), Append("a", 2)),
			done(3, 20, 21, Read("a", 1, 2)),
		}, Cycle},
		{"long fork", []Txn{
			done(1, 1, 10, a1), done(2, 1, 10, b1), done(3, 1, 10, Read("a", 1), Read("b")),
			done(4, 1, 10, Read("a"), Read("b", 1)),
		}, Cycle},
		{"stale read", []Txn{
			done(1, 1, 2, a1), done(2, 3, 4, Read("a")), done(3, 5, 6, Read("a", 1)),
		}, Cycle},
		{"from the future", []Txn{done(1, 1, 2, Read("a", 1)), done(2, 3, 4, a1)}, Cycle},
		{"a concurrent read may miss it", []Txn{done(1, 1, 4, a1), done(2, 3, 5, Read("a"))}, ""},
		{"torn read", []Txn{done(1, 1, 10, a1, b1), done(2, 1, 10, Read("a", 1), Read("b"))},
			Cycle},
		{"a committed append is lost", []Txn{
			done(1, 1, 2, a1), done(2, 3, 4, Append("a", 2)), done(3, 5, 6, Read("a", 2)),
		}, Lost},
		{"the last append is lost", []Txn{done(1, 1, 2, a1), done(2, 3, 4, Read("a"))}, Lost},
		{"an append that nobody read later", []Txn{done(1, 3, 4, a1), done(2, 1, 4, Read("a"))},
			""},
		{"aborted read", []Txn{with(done(1, 1, 2, a1), Aborted), done(2, 3, 4, Read("a", 1))},
			AbortedRead},
		{"intermediate read", []Txn{done(1, 1, 9, b1, b2), done(2, 1, 9, Read("b", 1))},
			Intermediate},
		{"duplicate", []Txn{done(1, 1, 2, a1), done(2, 3, 4, Read("a", 1, 1))}, Duplicate},
		{"garbage", []Txn{done(2, 3, 4, Read("a", 7))}, Garbage},
		{"future", []Txn{done(1, 1, 2, Read("a", 1), a1)}, Future},
		{"own append not read", []Txn{done(1, 1, 2, a1, Read("a"))}, Internal},
		{"read twice", []Txn{done(1, 1, 9, a1), done(2, 1, 9, Read("a"), Read("a", 1))}, Internal},
		{"orders contradict", []Txn{
			done(1, 1, 9, Append("a", 1)), done(2, 1, 9, Append("a", 2)),
			done(3, 1, 9, Read("a", 1, 2)), done(4, 1, 9, Read("a", 2)),
		}, Order},
		{"an unknown commit that nobody saw",
			[]Txn{with(done(1, 1, 2, a1, b1), Unknown), done(2, 3, 4, Read("a"), Read("b"))}, ""},
		{"an unknown commit may come late", []Txn{
			with(done(1, 1, 2, a1), Unknown), done(2, 3, 4, Read("a")), done(3, 5, 6, Read("a", 1)),
		}, ""},
		{"an unknown commit that was seen stays", []Txn{
			with(done(1, 1, 2, a1), Unknown), done(2, 3, 4, Read("a", 1)), done(3, 5, 6, Read("a")),
		}, Cycle},
		{"an unknown commit is whole", []Txn{
			with(done(1, 1, 2, a1, b1), Unknown), done(2, 3, 4, Read("a", 1), Read("b")),
		}, Cycle},
		{"a value appended twice", []Txn{done(1, 1, 2, a1), done(2, 3, 4, a1)}, Malformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Check(c.h)
			switch {
			case c.want == "" && len(found) > 0:
				t.Fatalf("accused: %v", found[0])
			case c.want != "" && len(found) == 0:
				t.Fatalf("not noticed: want %s", c.want)
			case c.want != "" && found[0].Kind != c.want:
				t.Fatalf("found %v, want %s", found[0], c.want)
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	h := run(1, none, 5000)
	for b.Loop() {
		if found := Check(h); len(found) > 0 {
			b.Fatal(found[0])
		}
	}
}
