package sicheck

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// bug is an occasional fault of a toy store.
type bug string

const (
	none           bug = ""
	lostUpdate     bug = "no conflict check"
	dirtyRead      bug = "reads see what is not committed"
	abortedWrite   bug = "an aborted transaction's writes stay"
	tornCommit     bug = "a commit becomes visible key by key"
	staleSnapshot  bug = "a snapshot is older than its begin"
	movingSnapshot bug = "each read takes a snapshot of its own"
	lostAppend     bug = "a committed append is dropped"
	doubleAppend   bug = "an append is applied twice"
	longFork       bug = "two replicas apply commits in different orders"
	blindToSelf    bug = "own appends are not read"
	reordered      bug = "two appends change places"
	halfCommit     bug = "of an unknown commit only a part is there"
	intermediate   bug = "a read sees another's append without its next one"
	future         bug = "a read sees what the reader appends next"
)

var bugs = []bug{
	lostUpdate, dirtyRead, abortedWrite, tornCommit, staleSnapshot, movingSnapshot, lostAppend,
	doubleAppend, longFork,
	blindToSelf, reordered, halfCommit, intermediate, future,
}

// toy is a multi-version store of lists, run by one goroutine that interleaves its transactions.
// One transaction in eight is faulty as the bug says.
type toy struct {
	rng     *rand.Rand
	bug     bug
	now     int64
	value   int64
	commits []commitRecord // in commit order
	pending map[string][]int64
	history []Txn
}

// commitRecord is one commit: visible to snapshots taken at or after at; on the second replica, at
// or after other.
type commitRecord struct {
	at, other int64
	writes    map[string][]int64
	late      map[string]int64 // keys of it that become visible later
}

type toyTxn struct {
	t        *toy
	id       int
	began    int64
	snapshot int64
	replica  int
	ops      []Op
	writes   map[string][]int64
	left     int
}

func (s *toy) tick() int64 { s.now++; return s.now }

func (s *toy) hit(b bug) bool { return s.bug == b && s.rng.IntN(8) == 0 }

// read returns the list at a snapshot.
func (s *toy) read(key string, at int64, replica int) []int64 {
	type part struct {
		at   int64
		list []int64
	}
	var parts []part
	for _, c := range s.commits {
		seen := c.at
		if replica == 1 {
			seen = c.other
		}
		if late, ok := c.late[key]; ok {
			seen = late
		}
		if seen <= at && len(c.writes[key]) > 0 {
			parts = append(parts, part{c.at, c.writes[key]})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return int(a.at - b.at) })
	var out []int64
	for _, p := range parts {
		out = append(out, p.list...)
	}
	return out
}

func (x *toyTxn) step() {
	s := x.t
	key := fmt.Sprint("k", s.rng.IntN(5))
	if s.rng.IntN(2) == 0 {
		s.value++
		x.ops = append(x.ops, Append(key, s.value))
		x.writes[key] = append(x.writes[key], s.value)
		if s.hit(doubleAppend) {
			x.writes[key] = append(x.writes[key], s.value)
		}
		if s.bug == dirtyRead {
			s.pending[key] = append(s.pending[key], s.value)
		}
		return
	}
	at := x.snapshot
	if s.bug == movingSnapshot {
		at = s.now
	}
	list := s.read(key, at, x.replica)
	if s.hit(dirtyRead) {
		for _, v := range s.pending[key] {
			if !slices.Contains(list, v) && !slices.Contains(x.writes[key], v) {
				list = append(list, v)
			}
		}
	}
	if s.bug != blindToSelf {
		list = append(list, x.writes[key]...)
	}
	n := len(list)
	if n > 1 && s.hit(reordered) {
		list[n-1], list[n-2] = list[n-2], list[n-1]
	}
	if own := len(x.writes[key]); n > own && s.hit(intermediate) {
		list = slices.Delete(list, n-own-1, n-own)
	}
	if s.hit(future) {
		s.value++
		x.ops = append(x.ops, Read(key, append(list, s.value)...), Append(key, s.value))
		x.writes[key] = append(x.writes[key], s.value)
		return
	}
	x.ops = append(x.ops, Read(key, list...))
}

// conflicts reports whether another transaction committed to one of the keys since the snapshot.
func (x *toyTxn) conflicts() bool {
	for _, c := range x.t.commits {
		for key := range x.writes {
			if len(c.writes[key]) > 0 && max(c.at, c.other, c.late[key]) > x.snapshot {
				return true
			}
		}
	}
	return false
}

// end commits or aborts.
func (x *toyTxn) end() {
	s := x.t
	out := Txn{ID: x.id, Ops: x.ops, Began: x.began}
	switch lucky := s.rng.IntN(10); {
	case x.conflicts() && !s.hit(lostUpdate), lucky == 0:
		out.Outcome = Aborted
		if s.hit(abortedWrite) {
			s.commit(x.writes)
		}
	case lucky == 1:
		out.Outcome = Unknown
		if s.bug == halfCommit {
			if keys := slices.Sorted(maps.Keys(x.writes)); len(keys) > 1 {
				delete(x.writes, keys[0])
			}
			s.commit(x.writes)
		} else if s.rng.IntN(2) == 0 {
			s.commit(x.writes)
		}
	default:
		s.commit(x.writes)
	}
	out.Ended = s.tick()
	s.history = append(s.history, out)
}

func (s *toy) commit(writes map[string][]int64) {
	at := s.tick()
	c := commitRecord{at: at, other: at, writes: writes, late: map[string]int64{}}
	for _, key := range slices.Sorted(maps.Keys(writes)) {
		if s.hit(lostAppend) {
			delete(writes, key)
		} else if s.hit(tornCommit) {
			c.late[key] = at + 25
		}
	}
	if s.hit(longFork) {
		c.other = at + 40
	}
	s.commits = append(s.commits, c)
}

// run creates a history of n transactions, up to six concurrent, and reads everything at the end.
func run(seed uint64, b bug, n int) []Txn {
	s := &toy{rng: rand.New(rand.NewPCG(seed, 11)), bug: b, pending: map[string][]int64{}}
	var open []*toyTxn
	for id := 0; id < n || len(open) > 0; {
		if id < n && len(open) < 6 && s.rng.IntN(3) == 0 {
			x := &toyTxn{
				t: s, id: id, began: s.tick(), writes: map[string][]int64{},
				left: 1 + s.rng.IntN(5), replica: s.rng.IntN(2),
			}
			x.snapshot = s.tick()
			if s.hit(staleSnapshot) {
				x.snapshot = max(0, x.snapshot-60)
			}
			open = append(open, x)
			id++
			continue
		}
		if len(open) == 0 {
			continue
		}
		i := s.rng.IntN(len(open))
		x := open[i]
		s.tick()
		if x.left--; x.left >= 0 {
			x.step()
			continue
		}
		x.end()
		open = slices.Delete(open, i, i+1)
	}
	s.now += 100
	last := Txn{ID: n, Began: s.tick()}
	for k := range 5 {
		key := fmt.Sprint("k", k)
		last.Ops = append(last.Ops, Read(key, s.read(key, s.now, 0)...))
	}
	last.Ended = s.tick()
	return append(s.history, last)
}
