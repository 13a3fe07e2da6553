package store_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// machine executes actions in a store as the tablets of a node do: entries are appended to the log
// and synced, their effects are committed afterwards by another goroutine, and after a crash they
// are applied again from the position of the state recorded in the log. It knows tablets only from
// the store. One goroutine uses it at a time, except that append may run concurrently with commit.
type machine struct {
	s       *store.Store
	rng     *rand.Rand // of commit
	tablets map[uint64]*tabletFigures
}

// numberRecord is the record with the number of the last action that appends no entries.
const numberRecord = "number"

// openMachine reads the tablets and completes interrupted installations and removals.
func openMachine(s *store.Store, rng *rand.Rand) (*machine, error) {
	m := &machine{s: s, rng: rng, tablets: map[uint64]*tabletFigures{}}
	snap := s.Snap()
	defer snap.Close()
	for e, err := range snap.Installings() {
		if err != nil {
			return nil, err
		}
		if err := m.finish(e.Tablet, e.State); err != nil {
			return nil, err
		}
	}
	after := s.Snap()
	defer after.Close()
	staged, err := after.StagedTablets()
	for _, id := range staged {
		err = errors.Join(err, m.delete(after.Staged(id)))
	}
	if err != nil {
		return nil, err
	}
	for e, err := range after.TabletStates() {
		if err != nil {
			return nil, err
		}
		t := &tabletFigures{}
		if err := json.Unmarshal(e.State, t); err != nil {
			return nil, err
		}
		a, ok, err := after.Applied(e.Tablet)
		if !ok || err != nil {
			return nil, fmt.Errorf("lost: tablet %d has no Applied record: %w", e.Tablet, err)
		}
		t.Epoch, t.Bytes, t.Index, t.Term = a.Epoch, a.Bytes, a.Index, a.Term
		m.tablets[e.Tablet] = t
	}
	return m, nil
}

// number returns the number of the last surviving action.
func (m *machine) number() (n uint64, err error) {
	snap := m.s.Snap()
	defer snap.Close()
	if v, ok, err := snap.Record(numberRecord); err != nil {
		return 0, err
	} else if ok {
		n = binary.BigEndian.Uint64(v)
	}
	for id := range m.tablets {
		entries, err := m.entries(id)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			n = max(n, opOf(e).N>>4)
		}
	}
	return n, nil
}

// entries returns all entries of a tablet's log.
func (m *machine) entries(id uint64) ([]*raftpb.Entry, error) {
	l, err := m.s.OpenLog(id)
	if err != nil {
		return nil, fmt.Errorf("lost: %w", err)
	}
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	if first > last {
		return nil, nil
	}
	return l.Entries(first, last+1, 1<<40)
}

func opOf(e *raftpb.Entry) (op entryOp) {
	_ = json.Unmarshal(e.Data, &op) // an undecodable entry is foreign, and differs
	return op
}

// replay applies the entries that the world has applied.
func (m *machine) replay(w *world) (n int, err error) {
	for again := true; again; { // a split creates tablets
		again = false
		for id, t := range m.tablets {
			if want := w.Tablets[id]; want != nil && t.Index < want.Figures.Index {
				n += int(want.Figures.Index - t.Index)
				again = true
				if err := m.commit(logAction{Tablet: id, Commit: want.Figures.Index}); err != nil {
					return n, err
				}
			}
		}
	}
	return n, nil
}

// do executes an action that creates or destroys a tablet, or sets a record.
func (m *machine) do(a action) error {
	b := &store.Batch{}
	b.PutRecord(numberRecord, binary.BigEndian.AppendUint64(nil, a.N))
	switch a.Kind {
	case createTablet:
		m.begin(b, a.Tablet, &a.Figures)
	case putRecord:
		b.PutRecord(a.Name, []byte(a.Record))
	case destroyTablet:
		b.PutTombstone(a.Tablet, binary.BigEndian.AppendUint64(nil, a.N))
		b.DeleteReplica(a.Tablet)
		return m.mark(b, a, *m.tablets[a.Tablet])
	case installRows:
		for _, f := range a.snapshot() {
			staged := &store.Batch{}
			staged.Stage(a.Tablet, store.Entry{
				Key: rowKey(f.Row), Value: rowValue(&f),
			})
			if err := m.write(staged); err != nil {
				return err
			}
		}
		return m.mark(b, a, a.Figures)
	}
	return m.write(b)
}

func (m *machine) write(batches ...*store.Batch) error { return m.s.StateWriter().Commit(batches) }

func rowKey(row int) []byte {
	g := mvcc.GroupRaw
	if isLocked(row) {
		g = mvcc.GroupLock
	}
	return store.AppendKey(nil, g, cell(rowCell(row), "c"), 0)
}

// rowValue returns the stored value of an effect.
func rowValue(f *effect) []byte { return append([]byte{1}, f.value()...) }

// putState adds the tablet's figures.
func putState(b *store.Batch, id uint64, t *tabletFigures) {
	state, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	b.PutTabletState(id, state)
	b.PutApplied(id, store.Applied{Index: t.Index, Term: t.Term, Epoch: t.Epoch, Bytes: t.Bytes})
}

// begin adds a tablet whose log begins at the index of the figures.
func (m *machine) begin(b *store.Batch, id uint64, t *tabletFigures) {
	putState(b, id, t)
	b.InitialLog(id, t.Index, t.Term)
	copied := *t
	m.tablets[id] = &copied
}

// marker is the value of PutInstalling.
type marker struct {
	Action action
	Clear  tabletFigures // the rows
}

// mark makes a marker durable and executes it.
func (m *machine) mark(b *store.Batch, a action, clear tabletFigures) error {
	record, err := json.Marshal(marker{a, clear})
	if err != nil {
		return err
	}
	b.PutInstalling(a.Tablet, record)
	if err := m.write(b); err != nil {
		return err
	}
	return m.finish(a.Tablet, record)
}

// finish executes a marker from its beginning.
func (m *machine) finish(id uint64, record []byte) error {
	var mark marker
	if err := json.Unmarshal(record, &mark); err != nil {
		return err
	}
	snap := m.s.SnapWithLocks()
	defer snap.Close()
	rows := snap.Cursor(store.Rows{
		Table: 16, Row: rowCell(mark.Clear.Lo), EndTable: 16, EndRow: rowCell(mark.Clear.Hi),
		Bounded: true,
	})
	if err := m.delete(rows); err != nil {
		return err
	}
	b := &store.Batch{}
	if delete(m.tablets, id); mark.Action.Kind == installRows {
		for staged := snap.Staged(id); ; {
			entries, err := staged.Next(5, 1<<20)
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				break
			}
			fill := &store.Batch{}
			for _, e := range entries {
				fill.Put(e.Key, e.Value)
			}
			if err := m.write(fill); err != nil {
				return err
			}
		}
		m.begin(b, id, &mark.Action.Figures)
	}
	b.DeleteInstalling(id)
	if err := m.write(b); err != nil {
		return err
	}
	return m.delete(snap.Staged(id))
}

func (m *machine) delete(c *store.Cursor) error {
	for {
		b := &store.Batch{}
		if n, err := c.Delete(b); n == 0 || err != nil {
			return err
		}
		if err := m.write(b); err != nil {
			return err
		}
	}
}

// append appends to logs, truncates some, and returns when both are durable.
func (m *machine) append(rng *rand.Rand, a action) error {
	b := &raftlog.Batch{}
	for _, l := range a.Logs {
		var entries []*raftpb.Entry
		for i, op := range l.Ops {
			data, err := json.Marshal(op)
			if err != nil {
				return err
			}
			data = append(data, bytes.Repeat([]byte(" "), rng.IntN(2000))...)
			entries = append(entries, entry(l.First+uint64(i), l.Term, data))
		}
		b.Append(l.Tablet, entries, &raftpb.HardState{
			Term: &l.Term, Vote: &l.Vote, Commit: &l.Commit,
		})
		r, err := m.s.OpenLog(l.Tablet)
		if err != nil {
			return err
		}
		first, _ := r.FirstIndex()
		if checkpoint, _ := r.Checkpoint(); checkpoint >= first && rng.IntN(3) == 0 {
			b.Truncate(l.Tablet, first+rng.Uint64N(checkpoint-first+1))
		}
	}
	return m.s.Append(b)
}

// commit applies committed entries, each as a Batch, some or all of them in one Commit.
func (m *machine) commit(logs ...logAction) error {
	var batches []*store.Batch
	for _, l := range logs {
		t := m.tablets[l.Tablet]
		r, err := m.s.OpenLog(l.Tablet)
		if err != nil {
			return err
		}
		for t.Index < l.Commit {
			entries, err := r.Entries(t.Index+1, l.Commit+1, 1<<20)
			if err != nil {
				return fmt.Errorf("lost: entry %d of tablet %d: %w", t.Index+1, l.Tablet, err)
			}
			for _, e := range entries {
				b, err := m.apply(l.Tablet, t, e)
				if err != nil {
					return err
				}
				if m.rng.IntN(20) == 0 { // locks are read now and then
					m.s.SnapWithLocks().Close()
				}
				if batches = append(batches, b); m.rng.IntN(3) == 0 {
					if err := m.write(batches...); err != nil {
						return err
					}
					batches = nil
				}
			}
		}
	}
	return m.write(batches...)
}

// apply fills a Batch with the effects of an entry.
func (m *machine) apply(id uint64, t *tabletFigures, e *raftpb.Entry) (*store.Batch, error) {
	b, op := &store.Batch{}, opOf(e)
	live, child := t.apply(op, e.GetIndex(), e.GetTerm())
	if live {
		for _, f := range op.effects() {
			if f.Delete {
				b.Delete(rowKey(f.Row))
			} else {
				b.Put(rowKey(f.Row), rowValue(&f))
			}
		}
	}
	if child != nil {
		if _, err := m.s.OpenLog(op.Child); !errors.Is(err, store.ErrNoLog) {
			return nil, fmt.Errorf("lost: the split of tablet %d into %d is applied again: %w", id,
				op.Child, err)
		}
		m.begin(b, op.Child, child)
	}
	putState(b, id, t)
	return b, nil
}
