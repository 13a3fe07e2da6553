package store_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/percolator-go/percolator/store"
)

// A world is the expected content of a store of some tablets after a list of actions. The tests
// that kill a process, or its power, have one on both sides: the process chooses its next action by
// it, announces it and executes it (machine_test.go), and the test tracks what must survive
// (crash_test.go).

const worldRows = 160 // in total; each tablet has a contiguous part of them, or none

// entryOp is the content of an entry of a Raft log. It has no effect if the tablet's epoch differs.
type entryOp struct {
	N      uint64 // of the action that appended it, and the seed of its effects
	Epoch  uint64
	Lo, Hi int    // the tablet's rows
	Child  uint64 `json:",omitempty"` // not 0: the rows from At on move to this new tablet
	At     int    `json:",omitempty"`
}

// effect is a blind put of Size bytes, or a delete.
type effect struct {
	Row, Size int
	Stamp     uint64
	Delete    bool
}

// effects returns the effects of an entry on the rows of its tablet. Some make a Batch larger than
// a Txn, and some have values of several chunks.
func (o entryOp) effects() (all []effect) {
	if o.Child != 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(o.N, uint64(o.Lo)))
	n, most := 1+rng.IntN(8), 3000
	switch rng.IntN(60) {
	case 0:
		n, most = 50, 40_000
	case 1:
		n, most = 2, 700_000
	}
	return randomEffects(rng, o.N, n, most, o.Lo, o.Hi)
}

func randomEffects(rng *rand.Rand, stamp uint64, n, most, lo, hi int) (all []effect) {
	for i := range n {
		if lo == hi {
			break
		}
		f := effect{
			Row: lo + rng.IntN(hi-lo), Stamp: stamp<<8 + uint64(i),
			Size: 8 * (1 + rng.IntN(most/8)),
		}
		f.Delete = rng.IntN(4) == 0
		if isLocked(f.Row) { // no lock is long, and most are deleted
			f.Size = min(f.Size, 240)
			f.Delete = f.Delete || rng.IntN(2) == 0
		}
		all = append(all, f)
	}
	return all
}

func (f effect) value() []byte {
	stamp := binary.BigEndian.AppendUint64(nil, f.Stamp)
	return slices.Repeat(stamp, f.Size/8)
}

// tabletFigures is the part of a tablet's state that applying an entry reads; rows are only
// written.
type tabletFigures struct {
	Lo, Hi       int
	Epoch, Bytes uint64
	Index, Term  uint64 // applied
}

// apply applies an entry to the figures. live reports whether the epoch matched. A split also
// returns the child.
func (t *tabletFigures) apply(o entryOp, index, term uint64) (live bool, child *tabletFigures) {
	t.Index, t.Term = index, term
	if o.Epoch != t.Epoch {
		return false, nil
	}
	for _, f := range o.effects() {
		t.Bytes += uint64(f.Size)
	}
	if o.Child != 0 {
		t.Epoch++
		t.Bytes /= 2
		child = &tabletFigures{
			Lo: o.At, Hi: t.Hi, Epoch: t.Epoch, Bytes: t.Bytes, Index: store.InitialIndex,
			Term: store.InitialTerm,
		}
		t.Hi = o.At
	}
	return true, child
}

// worldEntry is an entry of a log.
type worldEntry struct {
	Term uint64
	Op   entryOp
}

// worldTablet is a tablet's replica with its log.
type worldTablet struct {
	Figures                tabletFigures
	Term, Vote, Commit     uint64 // the HardState
	Committed, Begin, Last uint64 // may be applied; where the log begins; its last entry
	Entries                map[uint64]worldEntry
}

// begin empties the log. The vote stays.
func (t *worldTablet) begin(index, term uint64) {
	if t.Term < term {
		t.Term, t.Vote = term, 0
	}
	t.Commit = max(t.Commit, index)
	t.Committed, t.Begin, t.Last = max(t.Committed, index), index, index
	t.Entries = map[uint64]worldEntry{}
}

// world is the complete expected state.
type world struct {
	N          uint64 // of the last action
	NextTablet uint64
	Tablets    map[uint64]*worldTablet
	Cells      map[int]effect // by row
	Records    map[string]string
	Tombstones map[uint64]uint64 // the action that last destroyed the tablet
}

func newWorld() *world {
	return &world{
		NextTablet: 1, Tablets: map[uint64]*worldTablet{}, Cells: map[int]effect{},
		Records:    map[string]string{},
		Tombstones: map[uint64]uint64{},
	}
}

// Kinds of actions.
const (
	appendEntries = "append" // to some logs, with one sync
	// apply committed entries: none of it need survive, since their logs do
	commitEntries = "commit"
	createTablet  = "create"
	destroyTablet = "destroy"
	installRows   = "install" // a snapshot
	putRecord     = "record"
)

// action is an atomic step of the process: it survives completely or not at all.
type action struct {
	N       uint64
	Kind    string
	Logs    []logAction `json:",omitempty"` // of appendEntries and commitEntries
	Tablet  uint64      `json:",omitempty"`
	Figures tabletFigures
	Name    string `json:",omitempty"`
	Record  string `json:",omitempty"`
}

// logAction is a part of an action.
type logAction struct {
	Tablet uint64
	First  uint64    `json:",omitempty"`
	Ops    []entryOp `json:",omitempty"`
	// of the HardState; of commitEntries the index up to which to apply
	Term, Vote, Commit uint64
}

// apply advances the world by an action.
func (w *world) apply(a action) {
	w.N = a.N
	for _, l := range a.Logs {
		if a.Kind == appendEntries {
			w.append(l)
		} else {
			w.commit(l)
		}
	}
	switch a.Kind {
	case createTablet:
		w.NextTablet = max(w.NextTablet, a.Tablet+1)
		t := &worldTablet{Figures: a.Figures}
		t.begin(a.Figures.Index, a.Figures.Term)
		w.Tablets[a.Tablet] = t
	case destroyTablet:
		w.clear(w.Tablets[a.Tablet].Figures)
		delete(w.Tablets, a.Tablet)
		w.Tombstones[a.Tablet] = a.N
	case installRows:
		t := w.Tablets[a.Tablet]
		w.clear(a.Figures)
		w.put(a.snapshot())
		t.Figures = a.Figures
		t.begin(a.Figures.Index, a.Figures.Term)
	case putRecord:
		if delete(w.Records, a.Name); a.Record != "" {
			w.Records[a.Name] = a.Record
		}
	}
}

// snapshot returns the content of an installed snapshot.
func (a action) snapshot() []effect {
	all := randomEffects(rand.New(rand.NewPCG(a.N, 0)), a.N<<4, 12, 4000, a.Figures.Lo,
		a.Figures.Hi)
	for i := range all {
		all[i].Delete = false
	}
	return all
}

func (w *world) append(l logAction) {
	t := w.Tablets[l.Tablet]
	for i := l.First; i <= t.Last; i++ {
		delete(t.Entries, i)
	}
	for i, op := range l.Ops {
		t.Entries[l.First+uint64(i)] = worldEntry{l.Term, op}
		w.NextTablet = max(w.NextTablet, op.Child+1)
	}
	t.Last = l.First + uint64(len(l.Ops)) - 1
	t.Term, t.Vote, t.Commit = l.Term, l.Vote, l.Commit
	t.Committed = max(t.Committed, l.Commit)
}

func (w *world) commit(l logAction) {
	t := w.Tablets[l.Tablet]
	t.Committed = max(t.Committed, l.Commit)
	for t.Figures.Index < l.Commit {
		index := t.Figures.Index + 1
		e := t.Entries[index]
		live, child := t.Figures.apply(e.Op, index, e.Term)
		if live {
			w.put(e.Op.effects())
		}
		if child != nil {
			right := &worldTablet{Figures: *child}
			right.begin(child.Index, child.Term)
			w.Tablets[e.Op.Child] = right
		}
	}
}

func (w *world) put(all []effect) {
	for _, f := range all {
		if delete(w.Cells, f.Row); !f.Delete {
			w.Cells[f.Row] = f
		}
	}
}

func (w *world) clear(f tabletFigures) {
	for row := f.Lo; row < f.Hi; row++ {
		delete(w.Cells, row)
	}
}

// free returns some rows that belong to no tablet.
func (w *world) free(rng *rand.Rand) (lo, hi int) {
	taken := make([]bool, worldRows+1)
	taken[worldRows] = true
	for _, t := range w.Tablets {
		for row := t.Figures.Lo; row < t.Figures.Hi; row++ {
			taken[row] = true
		}
	}
	lo = rng.IntN(worldRows)
	for hi = lo; !taken[hi]; hi++ {
	}
	return lo, min(hi, lo+40)
}

// ids returns the tablets in order.
func (w *world) ids() []uint64 { return slices.Sorted(maps.Keys(w.Tablets)) }

// some returns a tablet.
func (w *world) some(rng *rand.Rand) uint64 {
	ids := w.ids()
	return ids[rng.IntN(len(ids))]
}

// isLocked reports whether the row holds a lock.
func isLocked(row int) bool { return row%2 == 1 }

func rowCell(row int) string { return fmt.Sprintf("row%03d", row) }
