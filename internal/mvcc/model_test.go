package mvcc_test

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// The assertions on a history. A broken build is caught by one of them.
const (
	assertSnapshot     = "reads-equal-the-snapshot"       // snapshot reads
	assertLostUpdate   = "no-lost-update"                 // first committer wins
	assertAtomic       = "all-or-nothing"                 // atomic commit
	assertPrimaryFirst = "primary-first"                  // atomic commit
	assertRevival      = "rolled-back-is-never-revived"   // rollbacks are final
	assertOneTS        = "one-commit-timestamp"           // one commit timestamp
	assertKnown        = "outcome-of-a-prewrite-is-known" // known outcomes
	assertNotify       = "notification-until-cleared"     // notifications
	assertOnce         = "one-observer-run-per-change"    // §2.4
	assertResolvable   = "every-lock-can-be-resolved"     // §2.2
	assertNoError      = "no-error"
)

// model is the sequential snapshot-isolation model: a list of committed versions per cell, and the
// guarantees given for each transaction. It has no locks, messages or tablets.
type model struct {
	txns     map[mvcc.Timestamp]*modelTxn // by start timestamp
	commits  map[mvcc.Timestamp]*modelTxn // by commit timestamp
	versions map[mvcc.Cell][]version      // by ascending commit timestamp
	locks    map[mvcc.Cell][]version      // committed locks without a write, in no order
	reads    []modelRead
	notified map[mvcc.Cell]mvcc.Timestamp // by notify cell: the newest change that its observer must process
	direct   map[mvcc.Timestamp]bool      // timestamps of notifications without a transaction
	cleared  map[mvcc.Cell]mvcc.Timestamp // the timestamp up to which a run may have cleared
	runs     map[mvcc.CellAt]mvcc.Timestamp
	gone     map[mvcc.Cell]mvcc.Timestamp // acknowledgments deleted with their cells: up to which commit timestamp
}

// modelTxn is what the model knows of one transaction.
type modelTxn struct {
	start      mvcc.Timestamp
	primary    mvcc.Cell
	writes     []mvcc.CellWriteRequest
	intents    []mvcc.Cell
	commitTS   mvcc.Timestamp
	rolledBack bool
	applied    map[mvcc.Cell]bool // cells with a write record
	observed   mvcc.Cell          // an observer's transaction: its notify cell, and the change it saw
	seen       mvcc.Timestamp
	async      bool
	least      map[mvcc.Cell]mvcc.Timestamp // MinCommitTS of its locks
	clears     bool                         // its acknowledgment clears the notification
}

// version is one committed value of a cell.
type version struct {
	commit, start mvcc.Timestamp
	deleted       bool
	value         []byte
}

// modelRead is an answer to a read.
type modelRead struct {
	cell   mvcc.Cell
	at     mvcc.Timestamp
	found  bool
	value  []byte
	commit mvcc.Timestamp // 0: not reported
}

func newModel() *model {
	return &model{
		txns: make(map[mvcc.Timestamp]*modelTxn), commits: make(map[mvcc.Timestamp]*modelTxn),
		versions: make(map[mvcc.Cell][]version), locks: make(map[mvcc.Cell][]version),
		notified: make(map[mvcc.Cell]mvcc.Timestamp), direct: make(map[mvcc.Timestamp]bool),
		cleared: make(map[mvcc.Cell]mvcc.Timestamp),
		runs:    make(map[mvcc.CellAt]mvcc.Timestamp), gone: make(map[mvcc.Cell]mvcc.Timestamp),
	}
}

// fault is a failed assertion.
type fault struct{ name, text string }

func faultf(name, format string, args ...any) *fault {
	return &fault{name: name, text: fmt.Sprintf(format, args...)}
}

// commit records the decision to commit.
func (m *model) commit(t *modelTxn, ts mvcc.Timestamp) *fault {
	if t.rolledBack {
		return faultf(assertRevival, "transaction %d commits at %d after it was reported as rolled back", t.start, ts)
	}
	if t.commitTS != 0 {
		if t.commitTS != ts {
			return faultf(assertOneTS, "transaction %d is committed at %d and at %d", t.start,
				t.commitTS, ts)
		}
		return nil
	}
	t.commitTS = ts
	m.commits[ts] = t
	for _, w := range t.writes {
		list := m.versions[w.Cell]
		for _, v := range slices.Concat(list, m.locks[w.Cell]) {
			if v.commit > t.start && v.start < ts {
				return faultf(assertLostUpdate, "%s: transactions [%d,%d] and [%d,%d] overlap",
					show(w.Cell), v.start, v.commit, t.start, ts)
			}
		}
		if w.Kind == mvcc.KindLock {
			m.locks[w.Cell] = append(m.locks[w.Cell], version{commit: ts, start: t.start})
			continue
		}
		i, _ := slices.BinarySearchFunc(list, ts, func(v version, ts mvcc.Timestamp) int {
			return int(v.commit) - int(ts)
		})
		m.versions[w.Cell] = slices.Insert(list, i,
			version{commit: ts, start: t.start, deleted: w.Kind == mvcc.KindDelete, value: mvcc.ValueOf(&w)})
	}
	if t.seen != 0 {
		change := mvcc.CellAt{t.observed, t.seen}
		if other, ok := m.runs[change]; ok {
			return faultf(assertOnce, "%s changed at %d: runs %d and %d both commit",
				show(t.observed), t.seen, other, t.start)
		}
		m.runs[change] = t.start
	}
	return nil
}

// rollback records that the transaction was reported as never to commit.
func (m *model) rollback(start mvcc.Timestamp) *fault {
	t := m.txns[start]
	if t.commitTS != 0 {
		return faultf(assertRevival, "transaction %d is rolled back after it committed at %d",
			start, t.commitTS)
	}
	t.rolledBack = true
	return nil
}

// committed checks a reported commit timestamp.
func (m *model) committed(start, ts mvcc.Timestamp) *fault {
	if t := m.txns[start]; t.commitTS != ts {
		return faultf(assertOneTS, "transaction %d is reported as committed at %d; it is at %d",
			start, ts, t.commitTS)
	}
	return nil
}

// at returns the value of a cell in the snapshot of a timestamp.
func (m *model) at(c mvcc.Cell, ts mvcc.Timestamp) (version, bool) {
	list := m.versions[c]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].commit <= ts {
			return list[i], true
		}
	}
	return version{}, false
}

// checkRead compares one answer with the final snapshot: a commit below an earlier read is a fault
// too.
func (m *model) checkRead(r modelRead) *fault {
	v, ok := m.at(r.cell, r.at)
	if ok && !r.found && v.commit <= m.gone[r.cell] {
		return nil
	}
	found := ok && !v.deleted
	if found == r.found && (!found || bytes.Equal(v.value, r.value)) &&
		(!found || r.commit == 0 || r.commit == v.commit) {
		return nil
	}
	return faultf(assertSnapshot, "%s at %d: read %q found=%t commit=%d; the snapshot has %q found=%t commit=%d",
		show(r.cell), r.at, r.value, r.found, r.commit, v.value, found, v.commit)
}

// mutated follows the effects of one operation on one tablet, before they are applied to the view.
func (m *model) mutated(view *mvcctest.MemView, list []mvcc.Mutation) *fault {
	for i := range list {
		mu := &list[i]
		if mu.Group == mvcc.GroupWrite && !mu.Delete {
			if t := m.txns[mu.Write.StartTS]; t.primary == mu.Cell && !t.async {
				if f := m.commit(t, mu.Write.CommitTS); f != nil {
					return f
				}
			}
		}
		if mu.Group == mvcc.GroupLock && !mu.Delete && mu.Lock.MinCommitTS != 0 {
			if f := m.locked(mu); f != nil {
				return f
			}
		}
		if t := m.txns[mu.TS]; mu.Group == mvcc.GroupRollback && !mu.Delete && (t.async || t.primary == mu.Cell) {
			if f := m.rollback(mu.TS); f != nil {
				return f
			}
		}
	}
	for i := range list {
		var f *fault
		switch mu := &list[i]; {
		case mu.Delete:
		case mu.Group == mvcc.GroupWrite, mu.Group == mvcc.GroupLocked:
			f = m.wrote(view, mu, list)
		case mu.Group == mvcc.GroupNotify:
			f = m.wroteNotify(view, mu)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// wrote checks one new write record.
func (m *model) wrote(view *mvcctest.MemView, mu *mvcc.Mutation, list []mvcc.Mutation) *fault {
	t, w := m.txns[mu.Write.StartTS], mu.Write
	if t.rolledBack {
		return faultf(assertRevival, "%s: a write record of transaction %d, which is rolled back",
			show(mu.Cell), t.start)
	}
	if t.commitTS == 0 {
		return faultf(assertPrimaryFirst,
			"%s: a write record of transaction %d before its primary's", show(mu.Cell), t.start)
	}
	if t.commitTS != w.CommitTS {
		return faultf(assertOneTS, "%s: transaction %d is committed at %d, here at %d",
			show(mu.Cell), t.start, t.commitTS, w.CommitTS)
	}
	t.applied[mu.Cell] = true
	if mu.Group == mvcc.GroupLocked || mu.Cell.Class != mvcc.ClassData || view.Observed(mu.Cell.Table,
		mu.Cell.Column).How != mvcc.ObservedStrong {
		return nil
	}
	for _, c := range notifyCells(view, mu.Cell) {
		m.notified[c] = max(m.notified[c], w.CommitTS)
		n, _, _ := view.Notification(c)
		for i := range list {
			if list[i].Group == mvcc.GroupNotify && list[i].Cell == c && !list[i].Delete {
				n = *list[i].Notify
			}
		}
		if n.TS < w.CommitTS {
			return faultf(assertNotify, "%s: written at %d without the notification of %s in the same mutations",
				show(mu.Cell), w.CommitTS, show(c))
		}
	}
	return nil
}

// wroteNotify checks one new N entry: it never decreases, and a transaction committed it.
func (m *model) wroteNotify(view *mvcctest.MemView, mu *mvcc.Mutation) *fault {
	old, _, _ := view.Notification(mu.Cell)
	if mu.Notify.TS < old.TS {
		return faultf(assertNotify, "%s: the notification goes back from %d to %d", show(mu.Cell),
			old.TS, mu.Notify.TS)
	}
	t, ok := m.commits[mu.Notify.TS]
	if !ok && !m.direct[mu.Notify.TS] {
		return faultf(assertNotify, "%s: a notification at %d, where nothing is committed",
			show(mu.Cell), mu.Notify.TS)
	}
	if ok && t.rolledBack {
		return faultf(assertRevival, "%s: a notification of transaction %d, which is rolled back",
			show(mu.Cell), t.start)
	}
	return nil
}

// finish checks the state when nothing is in flight.
func (m *model) finish(viewOf func(mvcc.Cell) *mvcctest.MemView) *fault {
	for _, r := range m.reads {
		if f := m.checkRead(r); f != nil {
			return f
		}
	}
	for _, t := range m.txns {
		if t.commitTS == 0 {
			continue
		}
		for _, w := range t.writes {
			if !t.applied[w.Cell] {
				return faultf(assertAtomic, "transaction %d is committed at %d, but not on %s",
					t.start, t.commitTS, show(w.Cell))
			}
		}
		if t.clears {
			m.cleared[t.observed] = max(m.cleared[t.observed], t.start)
		}
		for _, intent := range t.intents {
			for _, c := range notifyCells(viewOf(intent), intent) {
				m.notified[c] = max(m.notified[c], t.commitTS)
			}
		}
	}
	for c, ts := range m.notified {
		n, _, _ := viewOf(c).Notification(c)
		if n.TS < ts && m.cleared[c] < ts {
			return faultf(assertNotify, "%s changed at %d, its notification is of %d and was cleared up to %d", show(c), ts, n.TS, m.cleared[c])
		}
	}
	return m.checkVersions(viewOf)
}

// checkVersions reads every version that may still be read, and the moment before it.
func (m *model) checkVersions(viewOf func(mvcc.Cell) *mvcctest.MemView) *fault {
	for c, list := range m.versions {
		view := viewOf(c)
		for _, v := range list {
			for _, at := range []mvcc.Timestamp{v.commit - 1, v.commit, mvcc.MaxTimestamp - 1} {
				if at < view.Bound() {
					continue
				}
				res, err := mvcc.Get(view, c, at)
				if err != nil || res.Status != mvcc.StatusOK {
					return faultf(assertSnapshot, "%s at %d: %s, %v", show(c), at,
						statusName(res.Status), err)
				}
				if f := m.checkRead(modelRead{cell: c, at: at, found: res.Found, value: res.Value,
					commit: res.CommitTS}); f != nil {
					return f
				}
			}
		}
	}
	return nil
}

// acksMayGo reports that from now on any acknowledgment may be missing: all is decided and
// collected.
func (m *model) acksMayGo() {
	for c := range m.versions {
		if c.Class == mvcc.ClassAck {
			m.gone[c] = mvcc.MaxTimestamp
		}
	}
}
