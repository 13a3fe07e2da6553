package linear

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

const patience = 20 * time.Second

// TestCorrectIsNeverAccused: no correct history is reported, whether operations of unknown outcome
// took effect in it or not.
func TestCorrectIsNeverAccused(t *testing.T) {
	for seed := range uint64(seeds(t, 200)) {
		if err := Registers(runRegisters(seed, "", 300), patience); err != nil {
			t.Fatalf("registers, seed %d: %v", seed, err)
		}
		if err := Oracle(runOracle(seed, "", 300), patience); err != nil {
			t.Fatalf("oracle, seed %d: %v", seed, err)
		}
	}
}

// TestEveryBugIsCaught: each seeded bug is found in all except a few histories.
func TestEveryBugIsCaught(t *testing.T) {
	n := seeds(t, 50)
	for _, b := range registerBugs {
		t.Run(string(b), func(t *testing.T) {
			mostly(t, n, func(seed uint64) error {
				return Registers(runRegisters(seed, b, 300), patience)
			})
		})
	}
	for _, b := range oracleBugs {
		t.Run(string(b), func(t *testing.T) {
			mostly(t, n, func(seed uint64) error {
				h := runOracle(seed, b, 300)
				err := Oracle(h, patience)
				if direct := sorted(h); (direct == nil) != (err == nil) {
					t.Errorf("seed %d: %v, but sorted: %v", seed, err, direct)
				}
				return err
			})
		})
	}
}

func seeds(t *testing.T, n int) int {
	t.Helper()
	if testing.Short() {
		return n / 5
	}
	return n
}

func mostly(t *testing.T, n int, check func(seed uint64) error) {
	t.Helper()
	caught := 0
	for seed := range n {
		err := check(uint64(seed))
		if errors.Is(err, ErrNotLinearizable) {
			caught++
		} else if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if caught < n*9/10 {
		t.Errorf("caught in %d of %d histories", caught, n)
	}
}

// TestSmallHistories states the rules in hand-written histories.
func TestSmallHistories(t *testing.T) {
	read := func(call, end, found int64) Op {
		return Op{Key: "k", Kind: Read, Found: found, Call: call, Return: end}
	}
	write := func(call, end, value int64) Op {
		return Op{Key: "k", Kind: Write, Value: value, Call: call, Return: end}
	}
	swap := func(call, end, found, value int64) Op {
		return Op{Key: "k", Kind: Swap, Found: found, Value: value, Call: call, Return: end}
	}
	unknown := func(o Op) Op { o.Unknown = true; return o }
	other := func(o Op) Op { o.Key = "other"; return o }
	for _, c := range []struct {
		name string
		h    []Op
		want error
	}{
		{"nothing", nil, nil},
		{"empty at first", []Op{read(1, 2, 0)}, nil},
		{"one after the other", []Op{
			write(1, 2, 5), read(3, 4, 5), swap(5, 6, 5, 6), read(7, 8, 6),
		}, nil},
		{"a read beside a write may miss it", []Op{write(1, 5, 5), read(2, 3, 0)}, nil},
		{"a stale read", []Op{write(1, 2, 5), read(3, 4, 0)}, ErrNotLinearizable},
		{"two swaps of one value", []Op{write(1, 2, 5), swap(3, 9, 5, 6), swap(3, 9, 5, 7)},
			ErrNotLinearizable},
		{"seen, then not", []Op{write(1, 9, 5), read(2, 3, 5), read(4, 5, 0)}, ErrNotLinearizable},
		{"from the future", []Op{read(1, 2, 5), write(3, 4, 5)}, ErrNotLinearizable},
		{"from nowhere", []Op{read(1, 2, 5)}, ErrNotLinearizable},
		{"unknown and not done", []Op{unknown(write(1, 2, 5)), read(3, 4, 0)}, nil},
		{"unknown and done late", []Op{unknown(write(1, 2, 5)), read(3, 4, 0), read(5, 6, 5)}, nil},
		{"unknown, seen, then not", []Op{unknown(write(1, 2, 5)), read(3, 4, 5), read(5, 6, 0)},
			ErrNotLinearizable},
		{"an unknown swap found what was there",
			[]Op{unknown(write(1, 2, 5)), unknown(swap(3, 4, 5, 6)), read(5, 6, 0)},
			ErrNotLinearizable},
		{"registers are apart", []Op{write(1, 2, 5), other(read(3, 4, 0))}, nil},
		{"one value twice", []Op{write(1, 2, 5), write(3, 4, 5)}, ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Registers(c.h, patience); !errors.Is(err, c.want) ||
				(err != nil && c.want == nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	one := Stamp{First: 10, Count: 5, Call: 1, Return: 4}
	for name, c := range map[string]struct {
		second Stamp
		ok     bool
	}{
		"after":                {Stamp{First: 15, Count: 1, Call: 5, Return: 6}, true},
		"before, at once":      {Stamp{First: 9, Count: 1, Call: 3, Return: 6}, true},
		"before, later":        {Stamp{First: 9, Count: 1, Call: 5, Return: 6}, false},
		"the same":             {Stamp{First: 14, Count: 1, Call: 2, Return: 3}, false},
		"around it":            {Stamp{First: 8, Count: 9, Call: 1, Return: 6}, false},
		"none at all, in time": {Stamp{First: 15, Count: 0, Call: 5, Return: 6}, false},
	} {
		err, direct := Oracle([]Stamp{one, c.second}, patience), sorted([]Stamp{one, c.second})
		if (err == nil) != c.ok || (direct == nil) != c.ok {
			t.Errorf("%s: %v, %v", name, err, direct)
		}
	}
}

// bug is an occasional fault of a toy system.
type bug string

const (
	staleRead   bug = "a read is of an old value"
	lostWrite   bug = "an acknowledged write is lost"
	blindSwap   bug = "a swap does not look again before it puts its value"
	dirtyRead   bug = "a read sees a write that is refused"
	ackTooEarly bug = "a write is acknowledged before it is done"
	wentBack    bug = "the oracle goes back"
	sameTwice   bug = "the oracle gives a timestamp twice"
	overlap     bug = "two oracles"
)

var (
	registerBugs = []bug{staleRead, lostWrite, blindSwap, dirtyRead, ackTooEarly}
	oracleBugs   = []bug{wentBack, sameTwice, overlap}
)

// step is a pending operation of a toy: it takes effect at one moment between its call and its
// return.
type step struct {
	op          Op
	effect, end int64
}

// runRegisters runs up to five concurrent operations on three registers, on a simulated clock. One
// in five is faulty as the bug says.
func runRegisters(seed uint64, b bug, n int) (out []Op) {
	rng := rand.New(rand.NewPCG(seed, 5))
	values, old := map[string]int64{}, map[string]int64{}
	hit := func(x bug) bool { return x == b && rng.IntN(5) == 0 }
	var open []*step
	last := int64(0)
	for now := int64(1); len(out) < n || len(open) > 0; now++ {
		if len(open) < 5 && len(out) < n {
			effect := now + int64(rng.IntN(20))
			last++
			op := Op{
				Client: int(now), Key: string(rune('a' + rng.IntN(3))), Kind: Kind(rng.IntN(3)),
				Value: last, Call: now,
			}
			open = append(open, &step{
				op: op, effect: effect, end: effect + 1 + int64(rng.IntN(20)),
			})
		}
		var still []*step
		for _, s := range open {
			if s.op.Kind == Swap && b == blindSwap && s.op.Call == now {
				s.op.Found = values[s.op.Key]
			}
			if now == s.effect {
				if !take(s, values, old, hit, rng) {
					continue // refused: omitted
				}
			}
			if now < s.end {
				still = append(still, s)
				continue
			}
			s.op.Return = now
			if s.op.Kind != Read && rng.IntN(8) == 0 {
				s.op.Unknown = true
			}
			out = append(out, s.op)
		}
		open = still
	}
	return out
}

// take is the moment at which an operation takes effect; false if it is refused.
func take(s *step, values, old map[string]int64, hit func(bug) bool, rng *rand.Rand) bool {
	key := s.op.Key
	put := func() { old[key], values[key] = values[key], s.op.Value }
	switch s.op.Kind {
	case Read:
		s.op.Found = values[key]
		if hit(staleRead) {
			s.op.Found = old[key]
		}
	case Write:
		switch {
		case rng.IntN(5) == 0:
			if hit(dirtyRead) {
				put()
			}
			return false
		case hit(lostWrite):
		case hit(ackTooEarly):
			s.op.Return, s.end = s.effect, s.effect // and takes effect with the next one, if at all
			old[key] = s.op.Value
		default:
			put()
		}
	case Swap:
		if !hit(blindSwap) {
			s.op.Found = values[key]
		}
		put()
	}
	return true
}

// runOracle runs five clients of a toy oracle.
func runOracle(seed uint64, b bug, n int) (out []Stamp) {
	rng := rand.New(rand.NewPCG(seed, 6))
	next := [2]uint64{1, 1}
	type ask struct {
		s      Stamp
		effect int64
	}
	var open []ask
	for now := int64(1); len(out) < n; now++ {
		if len(open) < 5 {
			effect := now + int64(rng.IntN(10))
			s := Stamp{
				Client: int(now), Count: 1 + rng.IntN(4), Call: now,
				Return: effect + 1 + int64(rng.IntN(10)),
			}
			open = append(open, ask{s, effect})
		}
		var still []ask
		for _, a := range open {
			if now == a.effect {
				which := 0
				switch {
				case b == wentBack && rng.IntN(50) == 0:
					next[0] -= min(next[0]-1, 20)
				case b == overlap:
					which = rng.IntN(2)
				}
				a.s.First = next[which]
				next[which] += uint64(a.s.Count)
				if b == sameTwice && rng.IntN(20) == 0 {
					next[which]--
				}
			}
			if now < a.s.Return {
				still = append(still, a)
				continue
			}
			out = append(out, a.s)
		}
		open = still
	}
	return out
}
