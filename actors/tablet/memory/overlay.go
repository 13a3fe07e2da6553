package memory

import (
	"iter"
	"sort"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// What mutations see beyond the visible state. Evaluation of a batch looks up the same few
// cells repeatedly, and adds and removes every effect once, so none of it allocates for a cell
// with few effects.

// overlay contains the effects of proposals in flight: evaluated, perhaps not yet applied and
// visible. The latest effect on a key wins; an entry is removed when the proposal that added it
// is visible or lost.
type overlay struct {
	cells map[mvcc.Cell]*cellEffects
	// An operation looks up the same cell several times: recent is the last cell looked up, and
	// found its effects in flight; nil means none.
	recent mvcc.Cell
	found  *cellEffects
	spare  []*cellEffects // empty, for reuse
}

// cellEffects are the effects in flight on one cell, at least one. A few are searched
// linearly, more through an index.
type cellEffects struct {
	entries []overlayEntry
	index   map[entryKey]int // of entries; nil while they are few
	room    [2]overlayEntry  // for a typical commit: the record and the one that it supersedes
}

type overlayEntry struct {
	entryKey
	proposal uint64
	mutation *mvcc.Mutation
}

// entryKey identifies one of a cell's entries.
type entryKey struct {
	group mvcc.Group
	ts    mvcc.Timestamp
}

const (
	fewEffects      = 8   // up to this number they are searched linearly
	maxSpareEffects = 256 // kept for reuse at most
)

func newOverlay() *overlay { return &overlay{cells: map[mvcc.Cell]*cellEffects{}} }

// at returns the effects in flight on the cell, or nil.
func (o *overlay) at(c mvcc.Cell) *cellEffects {
	if c != o.recent {
		o.recent, o.found = c, o.cells[c]
	}
	return o.found
}

// add adds the effects of a proposal. The mutations are retained, and must not change before
// drop.
func (o *overlay) add(proposal uint64, muts []mvcc.Mutation) {
	for i := range muts {
		m := &muts[i]
		effects := o.at(m.Cell)
		if effects == nil {
			effects = o.begin(m.Cell)
		}
		effects.put(overlayEntry{entryKey{m.Group, m.TS}, proposal, m})
	}
}

// begin returns the cell's effects for its first one.
func (o *overlay) begin(c mvcc.Cell) *cellEffects {
	var effects *cellEffects
	if n := len(o.spare); n > 0 {
		effects, o.spare = o.spare[n-1], o.spare[:n-1]
	} else {
		effects = &cellEffects{}
		effects.entries = effects.room[:0]
	}
	o.cells[c] = effects
	o.recent, o.found = c, effects
	return effects
}

// end removes the cell, which has no effects in flight any more.
func (o *overlay) end(c mvcc.Cell, effects *cellEffects) {
	delete(o.cells, c)
	// recent must not return what is in spare now.
	if o.found == effects {
		o.found = nil
	}
	if effects.index == nil && len(o.spare) < maxSpareEffects {
		o.spare = append(o.spare, effects)
	}
}

// drop removes the proposal's effects, except where a newer effect replaced them: that one was
// evaluated on these, and becomes visible after them or is lost with them.
func (o *overlay) drop(proposal uint64, muts []mvcc.Mutation) {
	for i := range muts {
		c := muts[i].Cell
		effects := o.at(c)
		if effects == nil {
			continue
		}
		at := effects.find(entryKey{muts[i].Group, muts[i].TS})
		if at < 0 || effects.entries[at].proposal != proposal {
			continue
		}
		if effects.remove(at); len(effects.entries) == 0 {
			o.end(c, effects)
		}
	}
}

// find returns the index of an entry, or -1.
func (e *cellEffects) find(k entryKey) int {
	if e.index != nil {
		if at, ok := e.index[k]; ok {
			return at
		}
		return -1
	}
	for i := range e.entries {
		if e.entries[i].entryKey == k {
			return i
		}
	}
	return -1
}

// put adds an entry, or replaces the existing one.
func (e *cellEffects) put(entry overlayEntry) {
	if at := e.find(entry.entryKey); at >= 0 {
		e.entries[at] = entry
		return
	}
	// An index is kept until all effects on the cell are gone.
	e.entries = append(e.entries, entry)
	if e.index != nil {
		e.index[entry.entryKey] = len(e.entries) - 1
	} else if len(e.entries) > fewEffects {
		e.index = make(map[entryKey]int, 4*fewEffects)
		for i := range e.entries {
			e.index[e.entries[i].entryKey] = i
		}
	}
}

// remove removes the entry and moves the last one to its position.
func (e *cellEffects) remove(at int) {
	last := len(e.entries) - 1
	if e.index != nil {
		delete(e.index, e.entries[at].entryKey)
		if at != last {
			e.index[e.entries[last].entryKey] = at
		}
	}
	e.entries[at] = e.entries[last]
	e.entries[last] = overlayEntry{} // do not retain the mutation
	e.entries = e.entries[:last]
}

// get returns the latest effect in flight on an entry of the cell, which may be a deletion.
func (o *overlay) get(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) (*mvcc.Mutation, bool) {
	effects := o.at(c)
	if effects == nil {
		return nil, false
	}
	at := effects.find(entryKey{g, ts})
	if at < 0 {
		return nil, false
	}
	return effects.entries[at].mutation, true
}

// touches returns the number of a proposal in flight with an effect on the cell's lock,
// write record, past lock, or the transaction's rollback record, or 0 if there is none.
func (o *overlay) touches(c mvcc.Cell, start mvcc.Timestamp) (proposal uint64) {
	effects := o.at(c)
	if effects == nil {
		return 0
	}
	for _, k := range [...]entryKey{{mvcc.GroupWrite, 0}, {mvcc.GroupLock, 0},
		{mvcc.GroupLocked, 0}, {mvcc.GroupRollback, start}} {
		if at := effects.find(k); at >= 0 {
			return effects.entries[at].proposal
		}
	}
	return 0
}

// unsettled reports whether a lock or an intent in flight began below the timestamp.
func (o *overlay) unsettled(below mvcc.Timestamp) bool {
	for _, effects := range o.cells {
		for i := range effects.entries {
			switch entry := &effects.entries[i]; entry.group {
			case mvcc.GroupLock:
				if m := entry.mutation; !m.Delete && m.Lock.StartTS < below {
					return true
				}
			case mvcc.GroupIntent:
				// A deletion counts too: until it is visible the intent exists.
				if entry.ts < below {
					return true
				}
			}
		}
	}
	return false
}

// older merges the cell's history entries in flight with those on disk, newest first. Of two
// with the same timestamp the one in flight wins; a deletion hides the one on disk.
func (o *overlay) older(c mvcc.Cell, atOrBelow mvcc.Timestamp,
	disk iter.Seq2[mvcc.Write, error]) iter.Seq2[mvcc.Write, error] {
	effects := o.at(c)
	if effects == nil {
		return disk
	}
	var pending []*mvcc.Mutation
	for i := range effects.entries {
		if entry := &effects.entries[i]; entry.group == mvcc.GroupHistory && entry.ts <= atOrBelow {
			pending = append(pending, entry.mutation)
		}
	}
	if len(pending) == 0 {
		return disk
	}
	sort.Slice(pending, func(i, j int) bool { return pending[i].TS > pending[j].TS })
	return func(yield func(mvcc.Write, error) bool) {
		i := 0 // pending[:i] are done
		for w, err := range disk {
			if err != nil {
				yield(w, err)
				return
			}
			for ; i < len(pending) && pending[i].TS >= w.CommitTS; i++ {
				if !pending[i].Delete && !yield(*pending[i].Write, nil) {
					return
				}
			}
			if i > 0 && pending[i-1].TS == w.CommitTS {
				continue // the pending entry replaces it
			}
			if !yield(w, nil) {
				return
			}
		}
		// Yield the pending entries that are older than all on disk.
		for ; i < len(pending); i++ {
			if !pending[i].Delete && !yield(*pending[i].Write, nil) {
				return
			}
		}
	}
}
