package tablet

import (
	"iter"
	"sort"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// overlay holds the effects of proposals in flight: evaluated, maybe not yet applied and visible. The latest effect on a
// key wins; an entry goes when the proposal that made it is visible or lost.
type overlay struct {
	entries map[overlayKey]overlayEntry
	history map[mvcc.Cell]int // how many entries of H a cell has here
}

type overlayKey struct {
	group mvcc.Group
	cell  mvcc.Cell
	ts    mvcc.Timestamp
}

type overlayEntry struct {
	proposal uint64
	mutation *mvcc.Mutation
}

func newOverlay() *overlay {
	return &overlay{entries: map[overlayKey]overlayEntry{}, history: map[mvcc.Cell]int{}}
}

func keyOf(m *mvcc.Mutation) overlayKey {
	return overlayKey{group: m.Group, cell: m.Cell, ts: m.TS}
}

// add lays the effects of a proposal on top.
func (o *overlay) add(proposal uint64, muts []mvcc.Mutation) {
	for i := range muts {
		m := &muts[i]
		k := keyOf(m)
		if _, again := o.entries[k]; m.Group == mvcc.GroupHistory && !again {
			o.history[m.Cell]++
		}
		o.entries[k] = overlayEntry{proposal: proposal, mutation: m}
	}
}

// drop takes the proposal's effects away where nothing newer lies on top.
func (o *overlay) drop(proposal uint64, muts []mvcc.Mutation) {
	for i := range muts {
		k := keyOf(&muts[i])
		if e, ok := o.entries[k]; !ok || e.proposal != proposal {
			continue
		}
		delete(o.entries, k)
		if k.group != mvcc.GroupHistory {
			continue
		}
		if o.history[k.cell]--; o.history[k.cell] == 0 {
			delete(o.history, k.cell)
		}
	}
}

func (o *overlay) get(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) (*mvcc.Mutation, bool) {
	e, ok := o.entries[overlayKey{group: g, cell: c, ts: ts}]
	return e.mutation, ok
}

// touches is the number of a proposal in flight with an effect on the cell's lock, write record, or the transaction's
// rollback record; 0 if there is none.
func (o *overlay) touches(c mvcc.Cell, start mvcc.Timestamp) (proposal uint64) {
	if len(o.entries) == 0 {
		return 0
	}
	for _, k := range [...]overlayKey{{mvcc.GroupWrite, c, 0}, {mvcc.GroupLock, c, 0}, {mvcc.GroupRollback, c, start}} {
		if e, ok := o.entries[k]; ok {
			return e.proposal
		}
	}
	return 0
}

// older merges the cell's history entries in flight with those on disk, newest first.
func (o *overlay) older(c mvcc.Cell, atOrBelow mvcc.Timestamp, disk iter.Seq2[mvcc.Write, error]) iter.Seq2[mvcc.Write, error] {
	if o.history[c] == 0 {
		return disk
	}
	var pending []*mvcc.Mutation
	for k, e := range o.entries {
		if k.group == mvcc.GroupHistory && k.cell == c && k.ts <= atOrBelow {
			pending = append(pending, e.mutation)
		}
	}
	sort.Slice(pending, func(i, j int) bool { return pending[i].TS > pending[j].TS })
	return func(yield func(mvcc.Write, error) bool) {
		i := 0
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
				continue // the pending entry stands for it
			}
			if !yield(w, nil) {
				return
			}
		}
		for ; i < len(pending); i++ {
			if !pending[i].Delete && !yield(*pending[i].Write, nil) {
				return
			}
		}
	}
}

// evalView is the view that mutations are evaluated on: the newest visible state, the lock table, and the overlay on both.
type evalView struct {
	*store.Snap
	tablet *Tablet
}

var _ mvcc.CollectView = evalView{}

func (v evalView) Lock(c mvcc.Cell) (mvcc.Lock, bool) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupLock, c, 0); ok {
		if m.Delete {
			return mvcc.Lock{}, false
		}
		return *m.Lock, true
	}
	return v.tablet.locks.get(c)
}

// Locks is not read by mutations; it gives the applied locks.
func (v evalView) Locks(s mvcc.Span, reverse bool) iter.Seq2[mvcc.Cell, mvcc.Lock] {
	return v.tablet.locks.all(s, reverse)
}

func (v evalView) Newest(c mvcc.Cell) (mvcc.Write, bool, error) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupWrite, c, 0); ok {
		if m.Delete {
			return mvcc.Write{}, false, nil
		}
		return *m.Write, true, nil
	}
	return v.Snap.Newest(c)
}

func (v evalView) Older(c mvcc.Cell, atOrBelow mvcc.Timestamp) iter.Seq2[mvcc.Write, error] {
	return v.tablet.overlay.older(c, atOrBelow, v.Snap.Older(c, atOrBelow))
}

func (v evalView) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupData, c, start); ok {
		return m.Value, !m.Delete, nil
	}
	return v.Snap.Data(c, start)
}

func (v evalView) RolledBack(c mvcc.Cell, start mvcc.Timestamp) (bool, error) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupRollback, c, start); ok {
		return !m.Delete, nil
	}
	if v.tablet.rollbacks.none(start) {
		return false, nil
	}
	return v.Snap.RolledBack(c, start)
}

func (v evalView) Raw(c mvcc.Cell) ([]byte, bool, error) {
	if m, ok := v.tablet.overlay.get(mvcc.GroupRaw, c, 0); ok {
		return m.Value, !m.Delete, nil
	}
	return v.Snap.Raw(c)
}

func (v evalView) Observed(t mvcc.TableID, column string) mvcc.Observed {
	return v.tablet.catalogue.observed(t, column)
}

// HistoryOf leaves out what is being deleted.
func (v evalView) HistoryOf(cells []mvcc.CellAt, upTo mvcc.Timestamp) iter.Seq2[mvcc.CellWrite, error] {
	return func(yield func(mvcc.CellWrite, error) bool) {
		for cw, err := range v.Snap.HistoryOf(cells, upTo) {
			if m, ok := v.tablet.overlay.get(mvcc.GroupHistory, cw.Cell, cw.Write.CommitTS); ok && m.Delete && err == nil {
				continue
			}
			if !yield(cw, err) {
				return
			}
		}
	}
}

// Acks implements mvcc.Observers, as do AckOf and Dropped.
func (v evalView) Acks(t mvcc.TableID, column string) []string { return v.observers().Acks(t, column) }
func (v evalView) AckOf(t mvcc.TableID, observer string) (string, bool) {
	return v.observers().AckOf(t, observer)
}
func (v evalView) Dropped(t mvcc.TableID) bool { return v.observers().Dropped(t) }
func (v evalView) observers() observers        { return observers{v.tablet.catalogue, v.tablet.safepoint} }
func (v evalView) Bound() mvcc.Timestamp       { return v.tablet.bound }
func (v evalView) Safepoint() mvcc.Timestamp   { return v.tablet.safepoint }
