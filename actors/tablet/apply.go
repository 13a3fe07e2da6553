package tablet

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// applied comes back from the log actor: the effects of the entries are synced and visible.
type applied struct {
	index, term uint64
	done        []appliedEntry
	responses   []*raftpb.Message
	err         error
}

// appliedEntry is one command of ours, with what has become of it.
type appliedEntry struct {
	proposal *proposal // nil: not one of this leadership's
	dropped  bool      // evaluated under another epoch
	split    *wire.Split
}

// apply writes the effects of committed entries, and the applied index with them, in one Txn. It needs no sync of its
// own: what a power loss takes of it is applied again from the log, which is synced.
func (t *Tablet) apply(m *raftpb.Message) {
	batch := &store.Batch{}
	batch.SetLazy()
	a := &applied{responses: m.Responses}
	matched := 0
	for _, e := range m.Entries {
		t.index, t.entryTerm = e.GetIndex(), e.GetTerm()
		if e.GetType() != raftpb.EntryNormal || len(e.Data) == 0 {
			continue
		}
		entry, err := t.applyEntry(batch, e, &matched)
		if err != nil {
			t.fail(err)
			return
		}
		a.done = append(a.done, entry)
	}
	a.index, a.term = t.index, t.entryTerm
	t.matched += matched
	if t.stateChanged {
		t.stateChanged = false
		t.putState(batch)
	}
	record := store.Applied{Index: t.index, Term: t.entryTerm, Epoch: t.descriptor.Epoch}
	done := func(err error) {
		a.err = err
		t.root.Send(t.self, a)
	}
	if broken.SplitAppliedIndex {
		first := &store.Batch{}
		first.PutApplied(t.id, record)
		t.logs.send(&write{batch: first, done: func(error) { t.logs.send(&write{batch: batch, done: done}) }})
		return
	}
	batch.PutApplied(t.id, record)
	t.logs.send(&write{batch: batch, done: done})
}

// applyEntry adds one command's effects to the batch. A command of this leadership is still in memory: it is the next one
// in flight.
func (t *Tablet) applyEntry(batch *store.Batch, e *raftpb.Entry, matched *int) (appliedEntry, error) {
	var out appliedEntry
	command := &wire.Command{}
	if next := t.matched + *matched; next < len(t.inflight) && e.GetTerm() == t.term {
		out.proposal = t.inflight[next]
		command = out.proposal.command
		*matched++
	} else if err := proto.Unmarshal(e.Data, command); err != nil {
		return out, fmt.Errorf("entry %d of tablet %d cannot be read: %w", e.GetIndex(), t.id, err)
	}
	if command.Epoch != t.descriptor.Epoch {
		out.dropped = true
		return out, nil
	}
	for _, f := range command.Effects {
		if f.Delete {
			batch.Delete(f.Key)
		} else {
			batch.Put(f.Key, f.Value)
		}
	}
	switch {
	case command.Split != nil:
		out.split = command.Split
		t.applySplit(batch, command.Split)
	case command.Catalogue != nil:
		if command.Catalogue.Version > t.appliedCatalogue.version() {
			t.appliedCatalogue = newCatalogue(command.Catalogue)
			t.stateChanged = true
			if t.appliedCatalogue.version() > t.catalogue.version() {
				t.catalogue = t.appliedCatalogue
			}
		}
	case command.RaiseMark > t.mark:
		t.mark = command.RaiseMark
		t.stateChanged = true
	}
	return out, nil
}

// onApplied makes effects count: locks enter and leave memory, answers go out, and what waited for them goes on.
func (t *Tablet) onApplied(m *applied) {
	if m.err != nil {
		t.fail(m.err)
		return
	}
	t.visible = m.index
	t.step(m.responses)
	var dirty []mvcc.Cell
	for _, e := range m.done {
		if e.split != nil {
			t.splitVisible(e.split)
		}
		p := e.proposal
		if p == nil || len(t.inflight) == 0 || t.inflight[0] != p {
			continue
		}
		t.inflight = t.inflight[1:]
		t.matched--
		if e.dropped {
			t.lose(p, failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d was split meanwhile; try again", t.id))
			continue
		}
		dirty = t.finish(p, dirty)
	}
	if !t.leading && m.term == t.term && t.node.BasicStatus().RaftState == raft.StateLeader {
		t.lead()
	}
	if len(dirty) > 0 {
		t.host.Hint(dirty)
	}
	t.dispatchReads()
	t.settle()
}

// finish brings a proposal's locks into memory and answers its calls; it collects the cells that became dirty.
func (t *Tablet) finish(p *proposal, dirty []mvcc.Cell) []mvcc.Cell {
	for i := range p.muts {
		m := &p.muts[i]
		switch {
		case m.Group == mvcc.GroupLock && m.Delete:
			t.unlock(m.Cell)
		case m.Group == mvcc.GroupLock:
			t.locks.put(m.Cell, *m.Lock)
		case m.Group == mvcc.GroupNotify && !m.Delete:
			t.counters.notifies++
			if m.Notify.ParkedTS == 0 && m.Notify.Attempts == 0 {
				dirty = append(dirty, m.Cell)
			}
		}
	}
	t.overlay.drop(p.number, p.muts)
	for _, h := range p.holds {
		t.release(h)
	}
	p.deliver()
	return dirty
}

// unlock removes a persistent lock: the delete was evaluated against it, and nothing else may have replaced it since but
// a reservation, which only its own one-phase commit takes away.
func (t *Tablet) unlock(c mvcc.Cell) {
	if l, ok := t.locks.get(c); ok && l.Token == 0 {
		t.locks.remove(c, l.StartTS)
	}
}

// lead begins to serve: an entry of the own term is visible, so all earlier leaders' writes are. The lock group is loaded
// into memory first.
func (t *Tablet) lead() {
	snap := t.store.Snap()
	defer snap.Close()
	for _, span := range tableSpans(t.descriptor) {
		for l, err := range snap.DiskLocks(span) {
			if err != nil {
				t.fail(err)
				return
			}
			t.locks.put(l.Cell, l.Lock)
		}
	}
	t.leading = true
	t.servedTerm.Store(t.term)
	t.host.Leading(t.descriptor)
}
