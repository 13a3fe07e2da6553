package memory

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The Memory, with what its parts share: the start and end of a leadership, and the stages of
// a proposal's effects. They are evaluated (Evaluated), then in flight, and finally visible
// (VisibleLocks, Visible) or lost (Lost). All of it runs in the tablet's turns.

// Config configures a Memory.
type Config struct {
	Store   *store.Store
	Limits  mvcc.Limits
	Indexed int // maximum number of entries of each kind per column in the index
	// Recorded limits the records of changes of all tablets of the node; nil means no limit beyond
	// each tablet's own.
	Recorded *RecordBudget
	// Background starts the job: it calls Run on another goroutine, and then Finish in the
	// tablet's turn.
	Background func(Job)
}

// Job is work on the notification index that takes too long for a turn: a Count or a Refill.
type Job interface {
	// Run does the work, on any goroutine.
	Run()
	// finish adds the result to the index, in the tablet's turn. A split or the end of the
	// leadership may have dropped the index since: then the tablet has another column or none, and
	// the result is discarded.
	finish(*Memory) error
}

// Finish adds the result of a job that has run to the index.
func (m *Memory) Finish(j Job) error { return j.finish(m) }

// Memory is a leader's in-memory state. It belongs to the tablet's actor.
type Memory struct {
	cfg Config

	// Catalogue, Bound and Safepoint are the newest ones proposed, which evaluation honours.
	// Only Raise and Reset set them.
	Catalogue        *Catalogue
	Bound, Safepoint mvcc.Timestamp

	tablet  *pb.TabletDescriptor // as of Lead or Split
	locks   *lockTable
	overlay *overlay
	columns map[columnKey]*notifyColumn // the notification index
	changes uint64                      // version of the index's counts
	// Number of notifications that became visible while this replica led, since it was opened;
	// ReadView.Notified reports it.
	notified  uint64
	rollbacks entryBound // bounds the rollback records, by start timestamp
	pastLocks entryBound // bounds the past locks, by commit timestamp
	term      uint64     // of the leadership
	written   writtenOrigins
	ended     endedRuns
	record    *Record        // nil: changes are not recorded
	latest    mvcc.Timestamp // the greatest timestamp that this replica has got from the oracle
	// Notifying are the commit timestamps, or 0 while unknown, of the one-phase commits under way
	// that notify. The tablet sets them before a Capture for requests on a snapshot's completeness.
	Notifying []mvcc.Timestamp
}

// New returns the memory of a replica that does not lead.
func New(cfg Config) *Memory {
	m := &Memory{cfg: cfg}
	m.Clear()
	return m
}

// Raise replaces the catalogue by a later version and raises the bound and the safepoint; none
// of them is ever lowered. A nil catalogue and timestamps of 0 change nothing.
func (m *Memory) Raise(c *Catalogue, bound, safepoint mvcc.Timestamp) {
	if c != nil && c.Version() > m.Catalogue.Version() {
		m.Catalogue = c
	}
	m.Bound, m.Safepoint = max(m.Bound, bound), max(m.Safepoint, safepoint)
}

// Reset sets the catalogue, the bound and the safepoint to their applied values, after a proposal
// that raised one of them was lost.
func (m *Memory) Reset(c *Catalogue, bound, safepoint mvcc.Timestamp) {
	m.Catalogue, m.Bound, m.Safepoint = c, bound, safepoint
}

// Clear clears the memory at the end of a leadership.
func (m *Memory) Clear() {
	m.locks, m.overlay = newLockTable(), newOverlay()
	m.endRecord()
	m.clearIndex()
}

// clearIndex clears the notification index. Its columns are loaded again on demand, and a
// count under way finds another column, or none, and changes nothing.
func (m *Memory) clearIndex() {
	m.columns = map[columnKey]*notifyColumn{}
	m.changes++
}

// Lead begins a leadership of the tablet, in a term, with the locks on disk. Everything that
// earlier leaders wrote is visible. The index is loaded on demand, so that a new leader serves
// sooner.
func (m *Memory) Lead(d *pb.TabletDescriptor, term uint64) error {
	m.tablet, m.rollbacks, m.pastLocks = d, entryBound{}, entryBound{}
	m.term, m.written, m.ended = term, writtenOrigins{}, endedRuns{}
	snap := m.cfg.Store.SnapWithLocks()
	defer snap.Close()
	locked := false
	for _, span := range wire.Spans(d) {
		past, err := snap.PastLocks(span)
		if err != nil {
			return err
		}
		locked = locked || past
		for l, err := range snap.DiskLocks(span) {
			if err != nil {
				return err
			}
			m.locks.put(l.Cell, &l.Lock, 0)
		}
	}
	if !locked { // true of most tablets
		m.pastLocks.took(1)
	}
	return nil
}

// Split removes the rows from a position on, which now belong to another tablet; left is this
// tablet's descriptor. Nothing is in flight.
func (m *Memory) Split(left *pb.TabletDescriptor, right wire.Position) {
	m.tablet = left
	m.locks.dropFrom(mvcc.Cell{Table: right.Table, Row: right.Row})
	// The counts of the index cover the whole range, so it is loaded again.
	m.clearIndex()
}

// holds reports whether the tablet's range includes rows of the table.
func (m *Memory) holds(table mvcc.TableID) bool {
	_, ok := wire.Clip(m.tablet, mvcc.Span{Table: table})
	return ok
}

// Reserve puts the reservation of a one-phase commit, or of an asynchronous prewrite, on the cells
// that it writes, replacing the one without a commit timestamp. The lock must not change
// afterwards.
func (m *Memory) Reserve(writes []mvcc.CellWriteRequest, lock *mvcc.Lock) {
	for i := range writes {
		l := lock
		if writes[i].Kind == mvcc.KindLock { // readers do not wait for a cell that is only locked
			without := *lock
			without.Kind = mvcc.KindLock
			l = &without
		}
		m.locks.put(writes[i].Cell, l, m.latest)
	}
}

// Release removes the reservation with the token.
func (m *Memory) Release(writes []mvcc.CellWriteRequest, token uint64) {
	for i := range writes {
		m.locks.remove(writes[i].Cell, token)
	}
}

// Took records a timestamp that the oracle has assigned since the tablet leads.
func (m *Memory) Took(ts mvcc.Timestamp) {
	m.Knows(ts)
	m.rollbacks.took(ts)
	m.pastLocks.took(ts)
}

// Knows records a timestamp that the oracle has assigned: whoever requests one from now on gets a
// greater one.
func (m *Memory) Knows(ts mvcc.Timestamp) { m.latest = max(m.latest, ts) }

// Known returns the greatest timestamp of Knows and Took.
func (m *Memory) Known() mvcc.Timestamp { return m.latest }

// View returns the view for mutations over a Snap of the newest visible state.
func (m *Memory) View(snap *store.Snap) *EvalView { return &EvalView{Snap: snap, memory: m} }

// InFlight returns the number of a proposal in flight for which a one-phase commit or an
// asynchronous prewrite of the cell must wait, or 0 if there is none. Such an operation is checked
// now and evaluated when its timestamp arrives: the state that it was checked against may change in
// between.
func (m *Memory) InFlight(c mvcc.Cell, start mvcc.Timestamp) (proposal uint64) {
	return m.overlay.touches(c, start)
}

// Evaluated adds the effects of an operation, which are about to be proposed, to the overlay,
// where later evaluation sees them. It appends their changes of the index to changes, for
// Visible.
func (m *Memory) Evaluated(v *EvalView, proposal uint64, effects []mvcc.Mutation,
	changes []Change) ([]Change, error) {
	for i := range effects { // in order: each change is computed after the one before
		if g := effects[i].Group; g == mvcc.GroupNotify || g == mvcc.GroupIntent {
			ch, err := m.note(v, &effects[i])
			if err != nil {
				return changes, err
			}
			changes = append(changes, ch)
		}
		m.overlay.add(proposal, effects[i:i+1])
		m.bound(&effects[i])
	}
	return changes, nil
}

// bound records an effect that is about to be proposed, if an entryBound covers its group.
func (m *Memory) bound(e *mvcc.Mutation) {
	switch {
	case e.Delete:
	case e.Group == mvcc.GroupRollback:
		m.rollbacks.wrote(e.TS)
	case e.Group == mvcc.GroupLocked:
		m.pastLocks.wrote(e.Write.CommitTS)
	}
}

// Lost removes the effects of a proposal that will not become visible.
func (m *Memory) Lost(proposal uint64, effects []mvcc.Mutation) {
	m.overlay.drop(proposal, effects)
}

// VisibleLocks adds the locks of visible effects to memory, and removes those that the effects
// removed. It returns the cells that have become dirty. Answers that were not sent at the commit
// are sent between VisibleLocks and Visible, so that callers do not wait for the rest.
//
// known is the greatest timestamp that the leader knew when it evaluated the effects. Their callers
// may have been answered since, and have requested timestamps.
func (m *Memory) VisibleLocks(effects []mvcc.Mutation, known mvcc.Timestamp) (dirty []mvcc.Cell) {
	for i := range effects {
		e := &effects[i]
		switch {
		case e.Group == mvcc.GroupLock && e.Delete:
			// The delete was evaluated against this lock, and only a reservation, which stays, can
			// have replaced it since.
			m.locks.remove(e.Cell, 0)
		case e.Group == mvcc.GroupLock:
			m.locks.put(e.Cell, e.Lock, known)
		case e.Group == mvcc.GroupNotify && !e.Delete:
			m.notified++
			m.written.note(e.Notify.Origin())
			// Parked notifications and retries after a failed run are not news for the observers.
			if e.Notify.ParkedTS == 0 && e.Notify.Attempts == 0 {
				dirty = append(dirty, e.Cell)
			}
		}
	}
	return dirty
}

// Visible applies the rest of a proposal's visible effects, and removes them from the overlay:
// from here on they are read from the store. It reports whether it has recorded changes.
func (m *Memory) Visible(proposal uint64, effects []mvcc.Mutation, changes []Change) (recorded bool) {
	m.change(changes)
	m.overlay.drop(proposal, effects)
	return m.noteChanges(effects)
}

// Requeue moves the cell's notification to the end of its queue: a run has left it because the
// cell has changed since.
func (m *Memory) Requeue(c mvcc.Cell) {
	if col := m.columns[mvcc.ColumnOf(c)]; col != nil && col.queue != nil {
		col.queue.back(c.Row)
	}
}

// Unsettled reports whether any lock, or any lock or intent in flight, began below the timestamp,
// and returns such locks that are visible; most limits their number. It ignores reservations, which
// the tablet tracks.
func (m *Memory) Unsettled(below mvcc.Timestamp, most int) (unsettled bool, locks []mvcc.LockInfo) {
	m.locks.tree.Scan(func(e lockEntry) bool {
		if e.lock.StartTS < below && e.lock.Token == 0 {
			locks = append(locks, mvcc.LockInfo{Cell: e.cell, Lock: *e.lock})
		}
		return len(locks) < most
	})
	return len(locks) > 0 || m.overlay.unsettled(below), locks
}

// Locks returns the number of locked or reserved cells.
func (m *Memory) Locks() int { return m.locks.tree.Len() }

// OldestLock returns the least start timestamp among the first limit locks, not counting
// reservations; 0 if there are none.
func (m *Memory) OldestLock(limit int) (oldest mvcc.Timestamp) {
	m.locks.tree.Scan(func(e lockEntry) bool {
		if e.lock.Token != 0 {
			return true
		}
		if oldest == 0 || e.lock.StartTS < oldest {
			oldest = e.lock.StartTS
		}
		limit--
		return limit > 0
	})
	return oldest
}

// Locked reports whether any lock exists, other than reservations.
func (m *Memory) Locked() bool { return m.locks.applied > 0 }

// Pending returns the observers with notifications that are not parked, without those whose
// column is not loaded or not counted yet.
func (m *Memory) Pending() (pending []*pb.ObserverPending) {
	for _, o := range m.Catalogue.Message.GetObservers() {
		c := m.columns[wire.NotifyColumn(o)]
		if c == nil || c.uncounted || c.pending <= 0 {
			continue
		}
		pending = append(pending, &pb.ObserverPending{
			Name: o.Name, Notifications: uint64(c.pending), Parked: uint64(c.parked),
			OldestTs: uint64(c.ages.oldest()),
		})
	}
	return pending
}

// Changes returns a number that changes whenever the result of Waiting may, except by a new
// Catalogue.
func (m *Memory) Changes() uint64 { return m.changes }

// Columns returns the number of loaded columns of the notification index.
func (m *Memory) Columns() int { return len(m.columns) }

// Waiting reports whether an observed column may have a notification that is not parked, or a
// weak intent. It reads nothing: what is not in memory may exist.
func (m *Memory) Waiting() (notified, intended bool) {
	for _, c := range m.columns {
		notified = notified || c.uncounted || c.pending != 0
		intended = intended || c.uncounted || c.tally.intents != 0
	}
	// A column that is not loaded may have entries on disk, if the tablet has rows of its
	// table.
	for key := range m.Catalogue.indexed {
		if notified && intended {
			return true, true
		}
		if _, loaded := m.columns[key]; !loaded && m.holds(key.Table) {
			return true, true
		}
	}
	return notified, intended
}
