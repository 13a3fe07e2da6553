package memory

import (
	"math"

	"github.com/tidwall/btree"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The notification index is the leader's in-memory copy of the notify and intent groups, by
// column: the observed ones, and those of observers with notify entries of their own. Scanners
// iterate those groups constantly, and on disk every step skips the recently deleted entries; the
// index has none. Like the lock table it contains what is applied, and its counts are exact, once a
// worker has counted a large column.
//
// A column is loaded from disk when it is first changed, or requested while the catalogue has
// an observer for it: clients may request any column, and that must not make the index grow.
// Nothing of it can be in flight then, since every change passes through note; so what is on
// disk is what is applied.

// notifyColumn is the index of one column. Only an observed column has intents.
type notifyColumn struct {
	notifies *btree.BTreeG[mvcc.CellNotify] // by row; nil: too many, or uncounted
	intents  *btree.BTreeG[mvcc.CellIntent] // by row, start timestamp; nil: too many, or uncounted
	queue    *notifyQueue                   // not parked; nil: the order is unknown
	tally
	refilling
	// A read worker is still counting the entries on disk as of the load; tally has only the
	// changes since, and so may be negative. Until then there are no trees and no queue.
	uncounted bool
}

func newNotifyTree() *btree.BTreeG[mvcc.CellNotify] {
	less := func(a, b mvcc.CellNotify) bool { return a.Cell.Row < b.Cell.Row }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func newIntentTree() *btree.BTreeG[mvcc.CellIntent] {
	less := func(a, b mvcc.CellIntent) bool {
		return a.Cell.Row < b.Cell.Row || a.Cell.Row == b.Cell.Row && a.StartTS < b.StartTS
	}
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// observed returns the column for a read. It is nil if the column is neither in memory nor
// observed; then the disk is read instead.
func (m *Memory) observed(key columnKey) (*notifyColumn, error) {
	if c, ok := m.columns[key]; ok || !m.Catalogue.indexed[key] {
		return c, nil
	}
	return m.column(key)
}

// column returns the column, loaded from disk if necessary: if it has more than Config.Indexed
// entries it keeps none of them, and a worker counts them. It is empty if the tablet has no rows of
// the table.
func (m *Memory) column(key columnKey) (*notifyColumn, error) {
	if c, ok := m.columns[key]; ok {
		return c, nil
	}
	c := &notifyColumn{notifies: newNotifyTree(), intents: newIntentTree()}
	if span, here := wire.Clip(m.tablet, mvcc.Span{Table: key.Table}); here {
		if err := m.load(c, key, span); err != nil {
			return nil, err
		}
	}
	m.columns[key] = c
	m.changes++
	return c, nil
}

// load reads the column's entries in the span, or lets a worker count them if there are too many.
func (m *Memory) load(c *notifyColumn, key columnKey, span mvcc.Span) error {
	// The Snap has all that is visible, and thereby everything: nothing of the column is in
	// flight before it is loaded.
	snap, all := m.cfg.Store.Snap(), true
	err := eachNotify(snap, key, span, func(n mvcc.CellNotify) bool {
		c.notifies.Set(n)
		c.countNotify(&n.Notify, 1)
		all = c.notifies.Len() <= m.cfg.Indexed
		return all
	})
	if err == nil && all {
		err = eachIntent(snap, key, span, func(i mvcc.CellIntent) bool {
			c.intents.Set(i)
			c.tally.intents++
			all = c.intents.Len() <= m.cfg.Indexed
			return all
		})
	}
	if err != nil || all {
		snap.Close()
		c.queue = queueOf(c.notifies)
		return err
	}
	// The worker closes the Snap. Later changes are counted in the column's own tally, so the sum
	// of both is exact.
	*c = notifyColumn{uncounted: true}
	m.cfg.Background(&Count{column: c, key: key, span: span, snap: snap})
	return nil
}

// loadObserved loads all observed columns of the tablet: a scanner of one of them consults
// IdleHints before its next scan, which needs the counts of all. A leader does not load them when
// its leadership begins, so that it serves sooner.
func (m *Memory) loadObserved() error {
	for key := range m.Catalogue.indexed {
		if !m.holds(key.Table) {
			continue
		}
		if _, err := m.column(key); err != nil {
			return err
		}
	}
	return nil
}

// Count counts a large column as it was when the index was loaded.
type Count struct {
	column *notifyColumn
	key    columnKey
	span   mvcc.Span
	snap   *store.Snap
	tally  tally
	err    error
}

// Run does the counting, on any goroutine, and closes the Snap.
func (c *Count) Run() {
	defer c.snap.Close()
	c.err = c.tally.count(c.snap, c.key, c.span, math.MaxInt)
}

func (c *Count) finish(m *Memory) error {
	if c.err != nil || m.columns[c.key] != c.column {
		return c.err
	}
	c.column.merge(&c.tally)
	c.column.uncounted = false
	c.column.revive()
	m.changes++
	m.refill(c.key, c.column)
	return nil
}

// revive returns to keeping a group in memory when none of it is left on disk: then a new,
// empty tree is complete. It is called after each change, and so must be cheap.
func (c *notifyColumn) revive() {
	if c.uncounted {
		return
	}
	if c.notifies == nil && c.pending+c.parked == 0 {
		c.notifies = newNotifyTree()
	}
	// Parked notifications have no place in the queue, so only the pending ones count.
	if c.queue == nil || c.queue.lost && c.pending == 0 {
		c.queue = newNotifyQueue()
		c.queue.lost = c.pending > 0
	}
	if c.intents == nil && c.tally.intents == 0 {
		c.intents = newIntentTree()
	}
}

// eachNotify visits the column's notifications in the span, by row, until visit returns false.
func eachNotify(snap *store.Snap, key columnKey, span mvcc.Span,
	visit func(mvcc.CellNotify) bool) error {
	for n, err := range snap.Notifies(key, span.Start, false) {
		if err != nil || !span.Contains(n.Cell.Row) || !visit(n) {
			return err
		}
	}
	return nil
}

// eachIntent visits the column's intents in the span, by row, until visit returns false.
func eachIntent(snap *store.Snap, key columnKey, span mvcc.Span,
	visit func(mvcc.CellIntent) bool) error {
	if key.Class != mvcc.ClassData {
		return nil
	}
	for i, err := range snap.Intents(key.Table, key.Column, span.Start) {
		if err != nil || !span.Contains(i.Cell.Row) || !visit(i) {
			return err
		}
	}
	return nil
}

// Change is the change of a cell's notification or weak intent by one effect. before or after
// is nil where none existed or exists. The tablet keeps it with the proposal, from Evaluated to
// Visible; the changes of a lost proposal are dropped.
type Change struct {
	cell                   mvcc.Cell
	before, after          *mvcc.Notify
	intent                 bool // the change is of an intent, not of a notification
	start                  mvcc.Timestamp
	intentWas, intentStays *mvcc.Intent
}

// note returns the change that an effect makes in the notify or intent group. The effect will be
// applied to the entry as of its evaluation, since effects are applied in the order of their
// evaluation, or lost with all later ones. So the change can be counted when it is visible, without
// another lookup.
func (m *Memory) note(v *EvalView, mu *mvcc.Mutation) (Change, error) {
	// The column must be loaded before any change of the column is in flight.
	if _, err := m.column(mvcc.ColumnOf(mu.Cell)); err != nil {
		return Change{}, err
	}
	ch := Change{cell: mu.Cell, intent: mu.Group == mvcc.GroupIntent, start: mu.TS}
	if ch.intent {
		was, there, err := v.Intent(mu.Cell, mu.TS)
		if there {
			ch.intentWas = &was
		}
		if !mu.Delete {
			ch.intentStays = mu.Intent
		}
		return ch, err
	}
	was, there, err := v.Notification(mu.Cell)
	if there {
		ch.before = &was
	}
	if !mu.Delete {
		ch.after = mu.Notify
	}
	return ch, err
}

// change applies the changes of a visible proposal, in the order of evaluation.
func (m *Memory) change(changes []Change) {
	for i := range changes {
		ch := &changes[i]
		m.changes++
		key := mvcc.ColumnOf(ch.cell)
		c := m.columns[key]
		if c == nil {
			continue // the column was dropped meanwhile: the next load reads the disk
		}
		if ch.intent {
			c.changeIntent(ch, m.cfg.Indexed)
		} else {
			c.changeNotify(ch, m.cfg.Indexed)
		}
		c.revive()
		m.refill(key, c)
	}
}

// changeNotify applies a change of a notification. A tree that would exceed the limit of entries
// (most) is dropped, and the column is scanned on disk, beyond its queue, until it is empty
// (revive).
func (c *notifyColumn) changeNotify(ch *Change, most int) {
	if ch.before != nil {
		c.countNotify(ch.before, -1)
	}
	if ch.after != nil {
		c.countNotify(ch.after, 1)
	}
	c.note(ch.cell.Row)
	if c.queue != nil {
		c.queue.change(ch, most)
	}
	switch {
	case c.notifies == nil:
	case ch.after == nil:
		c.notifies.Delete(mvcc.CellNotify{Cell: ch.cell})
	default:
		c.notifies.Set(mvcc.CellNotify{Cell: ch.cell, Notify: *ch.after})
		if c.notifies.Len() > most {
			c.notifies = nil
		}
	}
}

// changeIntent is changeNotify for a weak intent.
func (c *notifyColumn) changeIntent(ch *Change, most int) {
	if ch.intentWas != nil {
		c.tally.intents--
	}
	if ch.intentStays != nil {
		c.tally.intents++
	}
	switch {
	case c.intents == nil:
	case ch.intentStays == nil:
		c.intents.Delete(mvcc.CellIntent{Cell: ch.cell, StartTS: ch.start})
	default:
		c.intents.Set(mvcc.CellIntent{Cell: ch.cell, StartTS: ch.start, Intent: *ch.intentStays})
		if c.intents.Len() > most {
			c.intents = nil
		}
	}
}
