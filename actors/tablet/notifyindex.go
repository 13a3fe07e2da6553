package tablet

import (
	"github.com/tidwall/btree"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// notifyIndex is the leader's in-memory copy of the notify and intent groups, by observed
// column. Scanners walk those groups all the time, and on disk every step passes over the
// entries deleted lately; here they are gone. It holds what is applied, as the lock table
// does, and it counts exactly: see notifyColumn. Only the tablet actor uses it; views
// gives copies to read workers.
//
// A column is loaded from disk when it is first changed, or asked for while an observer
// is in the catalogue for it: anybody may ask for any column, and that must not make the
// index grow. Nothing of it can be in flight then, for every change passes through note;
// so what is on disk is what is applied.
type notifyIndex struct {
	columns map[columnKey]*notifyColumn
}

// notifyColumn is one observed column's part.
type notifyColumn struct {
	notifies *btree.BTreeG[mvcc.CellNotify] // by row; nil: there are too many
	intents  *btree.BTreeG[mvcc.CellIntent] // by row and start timestamp; nil: too many
	queue    *notifyQueue                   // of those that wait; nil: the order is not known
	tally
	uncounted bool // a read worker still counts what was on disk at the load; tally has only what has changed since
}

func newNotifyIndex() *notifyIndex { return &notifyIndex{columns: map[columnKey]*notifyColumn{}} }

func newNotifyTree() *btree.BTreeG[mvcc.CellNotify] {
	less := func(a, b mvcc.CellNotify) bool { return a.Cell.Row < b.Cell.Row }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func newIntentTree() *btree.BTreeG[mvcc.CellIntent] {
	return btree.NewBTreeGOptions(lessIntent, btree.Options{NoLocks: true})
}

func lessIntent(a, b mvcc.CellIntent) bool {
	if a.Cell.Row != b.Cell.Row {
		return a.Cell.Row < b.Cell.Row
	}
	return a.StartTS < b.StartTS
}

func keyOfCell(c mvcc.Cell) columnKey { return columnKey{c.Table, c.Column} }

// observedNotifies is notifyColumn for who only asks: nil also if the column is not in
// memory and nothing observes it.
func (t *Tablet) observedNotifies(key columnKey) *notifyColumn {
	if c, ok := t.notify.columns[key]; ok || len(t.catalogue.acks[key]) == 0 {
		return c
	}
	return t.notifyColumn(key)
}

// notifyColumn is the column's part of the index; nil if the store cannot be read, which
// stops the replica.
func (t *Tablet) notifyColumn(key columnKey) *notifyColumn {
	if c, ok := t.notify.columns[key]; ok {
		return c
	}
	c, err := t.loadNotifyColumn(key)
	if err != nil {
		t.fail(err)
		return nil
	}
	t.notify.columns[key] = c
	t.posted.stale = true
	return c
}

// loadNotifyColumn reads the column from disk, of many entries only the first: a worker
// counts the rest.
func (t *Tablet) loadNotifyColumn(key columnKey) (*notifyColumn, error) {
	c := &notifyColumn{notifies: newNotifyTree(), intents: newIntentTree()}
	snap := t.store.Snap()
	span, ok := wire.Clip(t.descriptor, mvcc.Span{Table: key.table})
	if !ok {
		snap.Close()
		return c, nil
	}
	all := true
	err := eachNotify(snap, key, span, func(n mvcc.CellNotify) bool {
		c.notifies.Set(n)
		c.countNotify(&n.Notify, 1)
		all = c.notifies.Len() <= t.cfg.Indexed
		return all
	})
	if err == nil && all {
		err = eachIntent(snap, key, span, func(i mvcc.CellIntent) bool {
			c.intents.Set(i)
			c.tally.intents++
			all = c.intents.Len() <= t.cfg.Indexed
			return all
		})
	}
	if err != nil || all {
		snap.Close()
		c.queue = queueOf(c.notifies)
		return c, err
	}
	*c = notifyColumn{uncounted: true}
	t.background.submit(&countJob{tablet: t, column: c, key: key, span: span, snap: snap})
	return c, nil
}

// countJob counts a large column on a read worker, as it was when the index was loaded.
type countJob struct {
	tablet *Tablet
	column *notifyColumn
	key    columnKey
	span   mvcc.Span
	snap   *store.Snap
}

// counted is its result: to be added to what has changed since.
type counted struct {
	key    columnKey
	column *notifyColumn
	tally  tally
	err    error
}

func (j *countJob) run() {
	defer j.snap.Close()
	out := &counted{key: j.key, column: j.column}
	out.err = eachNotify(j.snap, j.key, j.span, func(n mvcc.CellNotify) bool {
		out.tally.countNotify(&n.Notify, 1)
		return true
	})
	if out.err == nil {
		out.err = eachIntent(j.snap, j.key, j.span, func(mvcc.CellIntent) bool {
			out.tally.intents++
			return true
		})
	}
	j.tablet.root.Send(j.tablet.self, out)
}

// onCounted completes a column's count, unless the index has been dropped meanwhile.
func (t *Tablet) onCounted(m *counted) {
	if m.err != nil {
		t.fail(m.err)
		return
	}
	if t.notify.columns[m.key] != m.column {
		return
	}
	m.column.merge(&m.tally)
	m.column.uncounted = false
	t.posted.stale = true
	m.column.revive()
}

// revive goes back to keeping a group in memory when nothing of it is left on disk.
func (c *notifyColumn) revive() {
	if c.uncounted {
		return
	}
	if c.notifies == nil && c.pending+c.parked == 0 {
		c.notifies = newNotifyTree()
	}
	if c.pending == 0 && (c.queue == nil || c.queue.lost) {
		c.queue = newNotifyQueue()
	}
	if c.intents == nil && c.tally.intents == 0 {
		c.intents = newIntentTree()
	}
}

// eachNotify visits the column's N entries in the span.
func eachNotify(snap *store.Snap, key columnKey, span mvcc.Span, visit func(mvcc.CellNotify) bool) error {
	for n, err := range snap.Notifies(key.table, key.column, span.Start, false) {
		if err != nil {
			return err
		}
		if !span.Contains(n.Cell.Row) || !visit(n) {
			return nil
		}
	}
	return nil
}

// eachIntent visits the column's I entries in the span.
func eachIntent(snap *store.Snap, key columnKey, span mvcc.Span, visit func(mvcc.CellIntent) bool) error {
	for i, err := range snap.Intents(key.table, key.column, span.Start) {
		if err != nil {
			return err
		}
		if !span.Contains(i.Cell.Row) || !visit(i) {
			return nil
		}
	}
	return nil
}

// notifyChange is what one effect does to the N or I entry of a cell; nil: there is none.
type notifyChange struct {
	cell                   mvcc.Cell
	before, after          *mvcc.Notify
	intent                 bool // I, not N
	start                  mvcc.Timestamp
	intentWas, intentStays *mvcc.Intent
}

// note remembers what an effect on the notify or intent group changes: what was there
// when it was evaluated is what will be there when it is applied, for effects are applied
// in the order of their evaluation, or lost with all that follows.
func (e *evaluation) note(p *proposal, m *mvcc.Mutation) error {
	if m.Group != mvcc.GroupNotify && m.Group != mvcc.GroupIntent {
		return nil
	}
	e.notifyColumn(keyOfCell(m.Cell)) // loaded before anything of it is in flight
	ch := notifyChange{cell: m.Cell, intent: m.Group == mvcc.GroupIntent, start: m.TS}
	if ch.intent {
		was, there, err := e.view.Intent(m.Cell, m.TS)
		if err != nil {
			return err
		}
		if there {
			ch.intentWas = &was
		}
		if !m.Delete {
			ch.intentStays = m.Intent
		}
	} else {
		was, there, err := e.view.Notification(m.Cell)
		if err != nil {
			return err
		}
		if there {
			ch.before = &was
		}
		if !m.Delete {
			ch.after = m.Notify
		}
	}
	p.notes = append(p.notes, ch)
	return nil
}

// applyNotes makes the changes of a visible proposal count.
func (t *Tablet) applyNotes(notes []notifyChange) {
	t.posted.stale = t.posted.stale || len(notes) > 0
	for i := range notes {
		ch := &notes[i]
		c := t.notify.columns[keyOfCell(ch.cell)]
		if c == nil {
			continue // dropped since: the next load reads it from disk
		}
		if ch.intent {
			c.changeIntent(ch, t.cfg.Indexed)
		} else {
			c.changeNotify(ch, t.cfg.Indexed)
		}
		c.revive()
	}
}

func (c *notifyColumn) changeNotify(ch *notifyChange, most int) {
	if ch.before != nil {
		c.countNotify(ch.before, -1)
	}
	if ch.after != nil {
		c.countNotify(ch.after, 1)
	}
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

func (c *notifyColumn) changeIntent(ch *notifyChange, most int) {
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
