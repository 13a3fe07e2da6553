package tablet

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// applied comes back from the state actor: the effects of an entry are visible.
type applied struct {
	index, term uint64
	proposal    *proposal // nil: not one of this leadership's
	dropped     bool      // evaluated under another epoch
	split       *wire.Split
	checksum    uint64
	changed     *pb.TabletDescriptor // by a change of the replicas
	responses   []*raftpb.Message
	err         error
}

// apply hands committed entries to the state actor one by one: each fits the store alone,
// several together may not, and the actor puts as many into one Txn as do.
func (t *Tablet) apply(entries []*raftpb.Entry, responses []*raftpb.Message) {
	for i, e := range entries {
		a := &applied{index: e.GetIndex(), term: e.GetTerm()}
		if i == len(entries)-1 {
			a.responses = responses
		}
		if err := t.applyEntry(a, e); err != nil {
			t.fail(err)
			return
		}
	}
}

// applyEntry writes the effects of one entry, and the applied index with them, in one
// Txn. It needs no sync: what a crash takes of it is applied again from the log, which is
// synced.
func (t *Tablet) applyEntry(a *applied, e *raftpb.Entry) error {
	batch := &store.Batch{}
	var err error
	switch {
	case e.GetType() != raftpb.EntryNormal:
		err = t.applyConfChange(a, e)
	case len(e.Data) > 0:
		err = t.applyCommand(batch, a, e)
	case a.term == t.group.Term() && t.pipeline.next() != nil &&
		t.pipeline.next().command.Replicas != nil:
		// Raft has put this in the place of a change that it refused. It puts nothing in
		// the place of other proposals: the entry with which a leadership begins is no
		// answer to the first of them.
		a.proposal, a.dropped = t.pipeline.next(), true
		t.pipeline.matched++
	}
	if err != nil {
		return err
	}
	t.index, t.entryTerm = a.index, a.term
	if t.stateChanged {
		t.stateChanged = false
		t.state.put(batch, t.id)
	}
	record := t.state.applied()
	done := func(err error) {
		a.err = err
		t.root.Send(t.self, a)
	}
	batch.PutApplied(t.id, record)
	w := &write{batch: batch, stream: t.writes, done: done}
	if a.checksum != 0 && a.index > t.group.Replayed() {
		t.fenceChecksum(w, a)
	}
	t.logs.apply(w)
	return nil
}

// applyCommand adds one command's effects to the batch. A command of this leadership is
// still in memory: it is the next one in flight.
func (t *Tablet) applyCommand(batch *store.Batch, a *applied, e *raftpb.Entry) error {
	command := t.match(a)
	if command == nil {
		command = &wire.Command{}
		if err := proto.Unmarshal(e.Data, command); err != nil {
			return fmt.Errorf("entry %d of tablet %d cannot be read: %w", a.index, t.id, err)
		}
	}
	if command.Epoch != t.descriptor.Epoch {
		a.dropped = true
		return nil
	}
	batch.Grow(len(command.Effects))
	for _, f := range command.Effects {
		if f.Delete {
			batch.Delete(f.Key)
		} else {
			batch.Put(f.Key, f.Value)
		}
		t.sizing.count(&t.bytes, f)
	}
	switch {
	case command.Split != nil:
		a.split = command.Split
		if err := t.state.split(batch, t.store, command.Split); err != nil {
			return err
		}
		t.group.Reconfigure(t.descriptor)
	case command.Catalogue != nil:
		if command.Catalogue.Version > t.appliedCatalogue.Version() {
			t.appliedCatalogue = memory.NewCatalogue(command.Catalogue)
			t.stateChanged = true
			if t.appliedCatalogue.Version() > t.memory.Catalogue.Version() {
				t.memory.Catalogue = t.appliedCatalogue
			}
		}
	case command.Sized != nil:
		t.bytes, t.rough, t.sizing.churn = command.Sized.Bytes, false, 0
	case command.Checksum != 0:
		a.checksum = command.Checksum
	case command.Bound != 0 || command.Safepoint != 0:
		t.state.raise(command)
		t.memory.Bound, t.memory.Safepoint = max(t.memory.Bound, t.appliedBound),
			max(t.memory.Safepoint, t.appliedSafepoint)
		t.seenSafepoint.Store(max(t.seenSafepoint.Load(), uint64(t.appliedSafepoint)))
	case command.RaiseMark > t.mark:
		t.mark = command.RaiseMark
		t.stateChanged = true
	}
	return nil
}

// match is the command of an entry that this leadership has proposed: entries of a term
// come in the order in which its leader has proposed them. nil: it is another's.
func (t *Tablet) match(a *applied) *wire.Command {
	if p := t.pipeline.next(); p != nil && a.term == t.group.Term() {
		t.pipeline.matched++
		a.proposal = p
		return p.command
	}
	return nil
}

// onApplied makes effects count: locks enter and leave memory, answers go out, and what
// waited for them goes on.
func (t *Tablet) onApplied(m *applied) {
	if m.err == nil {
		m.err = t.group.Applied(m.index, m.term, m.responses)
	}
	if m.err != nil {
		t.fail(m.err)
		return
	}
	if m.split != nil {
		t.splitVisible(m.split)
	}
	var dirty []mvcc.Cell
	if p := m.proposal; t.pipeline.visible(p) {
		if m.dropped {
			t.lose(p, failure(pb.Error_CODE_NOT_PROPOSED,
				"tablet %d has changed meanwhile; try again", t.id))
		} else {
			dirty = t.finish(p)
		}
		if m.dropped {
			t.restore()
			t.loseExclusive(p)
		}
	}
	if m.changed != nil {
		t.changeVisible(m.changed)
	}
	t.tryLead()
	t.publishLeadership() // the mark may have been raised
	if len(dirty) > 0 {
		t.host.Hint(dirty)
	}
	t.dispatchReads()
	t.settle()
}

// finish brings a proposal's locks into memory and answers its calls; it returns the
// cells that became dirty.
func (t *Tablet) finish(p *proposal) (dirty []mvcc.Cell) {
	dirty = t.memory.VisibleLocks(p.muts)
	// who is answered goes on beside the rest, and meets this tablet only after this turn
	p.deliver()
	t.memory.Visible(p.number, p.muts, p.notes)
	t.history.note(p.muts)
	for _, h := range p.holds {
		t.reservations.release(h)
	}
	if p.command.Safepoint != 0 || p.command.Catalogue != nil {
		t.beginPass()
	}
	if p.collects {
		t.history.stepMade(p.muts)
		t.history.armAfterPause(t.counters.operations(), t.appliedSafepoint)
	}
	return dirty
}

// tryLead begins to serve if this replica is elected and an entry of its own term is
// applied and visible.
func (t *Tablet) tryLead() {
	if !t.leading && t.failed == nil && t.group.MayLead() {
		t.lead()
	}
}

// lead begins to serve: an entry of the own term is visible, so all earlier leaders'
// writes are. The lock group is loaded into memory first.
func (t *Tablet) lead() {
	if err := t.memory.Lead(t.descriptor); err != nil {
		t.fail(err)
		return
	}
	t.leading = true
	t.history = newHistory(t.history.remind)
	t.beginPass()
	t.servedTerm.Store(t.group.Term())
	t.publishLeadership()
	t.host.Leading(t.descriptor)
	t.goOnChanging()
}
