package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/percolator-go/percolator/store"
)

// Choice of a process's next action in a world (world_test.go).

// next returns a possible action. In a calm world, tablets are neither created nor destroyed, and
// only Checkpoint makes the state durable.
func (w *world) next(rng *rand.Rand, calm bool) action {
	a := action{N: w.N + 1}
	k := rng.IntN(100)
	switch {
	case len(w.Tablets) < 2 || len(w.Tablets) < 8 && k < 2 && !calm:
		w.nextCreate(rng, &a)
	case k < 50:
		w.nextAppend(rng, &a, calm)
	case k < 92 || k < 96 && calm:
		w.nextCommit(rng, &a)
	case k < 94:
		a.Kind, a.Tablet = destroyTablet, w.some(rng)
	case k < 96:
		w.nextInstall(rng, &a)
	default:
		a.Kind, a.Name = putRecord, fmt.Sprint("record ", rng.IntN(3))
		a.Record = strings.Repeat("r", rng.IntN(30)*rng.IntN(2))
		if a.Record != "" {
			a.Record += fmt.Sprint(a.N)
		}
	}
	return a
}

// nextCreate creates a tablet with rows, or one that waits for a snapshot; some existed before.
func (w *world) nextCreate(rng *rand.Rand, a *action) {
	a.Kind, a.Tablet = createTablet, w.NextTablet
	for id := range w.Tombstones {
		if w.Tablets[id] == nil && rng.IntN(3) == 0 {
			a.Tablet = id
		}
	}
	if rng.IntN(3) == 0 {
		return
	}
	a.Figures = tabletFigures{Epoch: 1, Index: store.InitialIndex, Term: store.InitialTerm}
	a.Figures.Lo, a.Figures.Hi = w.free(rng)
}

// nextInstall replaces a tablet's whole state, or installs the snapshot for which it waits.
func (w *world) nextInstall(rng *rand.Rand, a *action) {
	a.Kind, a.Tablet = installRows, w.some(rng)
	t := w.Tablets[a.Tablet]
	a.Figures = t.Figures
	if a.Figures.Lo == a.Figures.Hi {
		a.Figures.Lo, a.Figures.Hi = w.free(rng)
	}
	a.Figures.Epoch++
	a.Figures.Bytes = a.N
	a.Figures.Index = t.Last + rng.Uint64N(4)
	a.Figures.Term = max(t.Term, 1) + rng.Uint64N(2)
}

// nextAppend appends to the logs of some tablets; a new leader overwrites some uncommitted entries.
func (w *world) nextAppend(rng *rand.Rand, a *action, calm bool) {
	a.Kind = appendEntries
	seen, ops := map[uint64]bool{}, uint64(0)
	for range 1 + rng.IntN(3) {
		id := w.some(rng)
		if seen[id] {
			continue
		}
		seen[id] = true
		t := w.Tablets[id]
		l := logAction{Tablet: id, First: t.Last + 1, Term: t.Term, Vote: t.Vote}
		if l.Term == 0 || rng.IntN(10) == 0 {
			l.Term, l.Vote = t.Term+1, 0
			l.First = t.Committed + 1 + rng.Uint64N(t.Last-t.Committed+1)
		}
		if l.Vote == 0 {
			l.Vote = rng.Uint64N(4)
		}
		for range 1 + rng.IntN(4) {
			l.Ops = append(l.Ops, w.nextOp(rng, a.N, ops, t, calm))
			ops++
		}
		last := l.First + uint64(len(l.Ops)) - 1
		if l.Commit = t.Commit; rng.IntN(2) == 0 && l.First > t.Commit {
			l.Commit += rng.Uint64N(last - l.Commit + 1)
		}
		a.Logs = append(a.Logs, l)
	}
}

// nextOp returns entry number i of an action.
func (w *world) nextOp(rng *rand.Rand, n, i uint64, t *worldTablet, calm bool) entryOp {
	f := t.Figures
	op := entryOp{N: n<<4 + i, Epoch: f.Epoch, Lo: f.Lo, Hi: f.Hi}
	if rng.IntN(40) == 0 && !calm && f.Hi-f.Lo > 2 && len(w.Tablets) < 8 {
		op.Child, op.At = w.NextTablet+i, f.Lo+1+rng.IntN(f.Hi-f.Lo-1)
	}
	return op
}

// nextCommit applies some entries of some tablets.
func (w *world) nextCommit(rng *rand.Rand, a *action) {
	a.Kind = commitEntries
	seen := map[uint64]bool{}
	for range 1 + rng.IntN(3) {
		id := w.some(rng)
		t := w.Tablets[id]
		if n := t.Last - t.Figures.Index; n > 0 && !seen[id] {
			a.Logs = append(a.Logs, logAction{
				Tablet: id, Commit: t.Figures.Index + 1 + rng.Uint64N(n),
			})
		}
		seen[id] = true
	}
}
