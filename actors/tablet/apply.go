package tablet

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file takes committed entries through the state actor to visibility. An entry is
// handled twice: in the turn in which Raft hands it out, applyEntry updates the
// replicated figures in state and sends the effects to the state actor; when these can be
// read, the answer comes back as an applied message, and only then do they count
// (onApplied). In between, state is ahead of what a Snap shows. Any number of entries may
// be on their way, in order. All of it runs on the tablet's goroutine, except the done
// function of a write, which the state actor calls and which sends the message.

// applied is the state actor's answer: the effects of an entry are visible, or err says
// why they never will be.
type applied struct {
	index, term uint64
	proposal    *proposal // nil: not one of this leadership's
	dropped     bool      // evaluated under another epoch
	split       *wire.Split
	merge       *wire.Merge
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
		// The responses acknowledge the whole of this Ready to Raft, so they go with its
		// last entry.
		if i == len(entries)-1 {
			a.responses = responses
		}
		if err := t.applyEntry(a, e); err != nil {
			t.fail(err)
			return
		}
		if t.failed != nil { // stopped for a merge: the node reopens it
			return
		}
	}
}

// applyEntry sends the effects of one entry to the state actor, with the applied index in
// the same Txn. The write needs no sync: what a crash loses of it is applied again from
// the log, which is synced.
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
	if a.merge.GetRight() != nil {
		t.takeRows(a, a.merge)
		return nil
	}
	// From here on state is as of this entry. An entry that was dropped, or is empty,
	// moves the index all the same.
	t.index, t.entryTerm = a.index, a.term
	if t.stateChanged {
		t.stateChanged = false
		t.state.put(batch, t.id)
	}
	record := t.state.applied()
	done := func(err error) {
		a.err = err
		t.self.send(a)
	}
	batch.PutApplied(t.id, record)
	w := &writers.Write{Batch: batch, Stream: &t.writes, Done: done}
	if a.checksum != 0 && a.index > t.group.Replayed() {
		t.cfg.Checksums.fence(w, a, t.descriptor)
	}
	t.logs.Send(w)
	return nil
}

// applyCommand adds the effects of one command to the batch, and takes its changes of the
// replicated figures over. The command of an entry that this leadership proposed is still
// in memory; others are decoded from the entry.
func (t *Tablet) applyCommand(batch *store.Batch, a *applied, e *raftpb.Entry) error {
	command := t.pipeline.match(a, t.group.Term())
	if command == nil {
		command = &wire.Command{}
		if err := proto.Unmarshal(e.Data, command); err != nil {
			return fmt.Errorf("entry %d of tablet %d cannot be read: %w", a.index, t.id, err)
		}
	}
	// It was evaluated under another range or other replicas. Every replica drops it
	// alike, since all of them have the same descriptor at this entry.
	if command.Epoch != t.descriptor.Epoch || t.frozen != nil && !releases(command) {
		a.dropped = true
		return nil
	}
	t.cfg.Traces.Add(command.Traces...)
	if err := t.state.execute(batch, t.store, command, &t.sizing); err != nil {
		return err
	}
	switch {
	case command.Split != nil:
		a.split = command.Split
		t.group.Reconfigure(t.descriptor)
	case command.Merge != nil:
		if a.merge = command.Merge; a.merge.Right == nil {
			t.frozenAt = a.index
			t.group.Reconfigure(t.descriptor)
		}
	case command.Catalogue != nil:
		// A leader evaluates by a newer catalogue as soon as it is proposed, so its memory
		// may be ahead of this one.
		if t.appliedCatalogue.Version() > t.memory.Catalogue.Version() {
			t.memory.Catalogue = t.appliedCatalogue
		}
	case command.Checksum != 0:
		a.checksum = command.Checksum
	case command.Bound != 0 || command.Safepoint != 0:
		// A follower's memory learns of the bound and the safepoint here; a leader's had
		// them when it proposed them, and is never set back.
		t.memory.Bound, t.memory.Safepoint = max(t.memory.Bound, t.appliedBound),
			max(t.memory.Safepoint, t.appliedSafepoint)
		t.reads.safepoint.Store(max(t.reads.safepoint.Load(), uint64(t.appliedSafepoint)))
	}
	return nil
}

// onApplied makes the effects of an entry count: locks enter and leave memory, answers
// are sent, and whatever waited for this entry goes on.
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
	if m.merge != nil {
		t.mergeVisible(m.merge)
	}
	var dirty []mvcc.Cell
	// A proposal that was given up when this replica stepped down is not in the pipeline
	// any more: its callers have their answer already.
	if p := m.proposal; t.pipeline.visible(p) {
		if m.dropped {
			t.drop(p)
		} else {
			dirty = t.finish(p)
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
	// Reads whose index is this entry can be read now.
	t.reads.dispatch()
	t.retryWaiting()
}

// drop gives up a proposal that every replica has dropped.
func (t *Tablet) drop(p *proposal) {
	changed := failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d has changed meanwhile; try again",
		t.id)
	t.lose(p, changed)
	if p.collects {
		t.history.stepLost()
	}
	// What was evaluated on top of it goes by bounds and a catalogue that never came to be.
	t.revertToInFlight()
	if x := t.drain.op; x != nil && (p.command.Replicas != nil || p.command.Split != nil ||
		p.command.Merge != nil) {
		x.answer(changed)
		t.endExclusive()
	}
}

// finish ends a proposal whose effects are visible. It brings the locks into memory,
// answers the calls, and returns the cells that have become dirty.
func (t *Tablet) finish(p *proposal) (dirty []mvcc.Cell) {
	dirty = t.memory.VisibleLocks(p.muts)
	// Callers go on at once, beside the rest of this turn; what they send next is handled
	// after it.
	p.served(t.cfg.Traces)
	p.deliver()
	t.cfg.Metrics.Writes.Since(p.began)
	t.memory.Visible(p.number, p.muts, p.notes)
	t.history.note(p.muts)
	// Only now: a reservation that went before its effects were visible would let a
	// reader miss them.
	for _, h := range p.holds {
		t.reservations.release(h)
	}
	// The safepoint has moved, or a table may have been dropped: there may be history to
	// collect.
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
// visible. It is called wherever one of the two may have come true.
func (t *Tablet) tryLead() {
	if !t.leading && t.failed == nil && t.group.MayLead() {
		t.lead()
	}
}

// lead begins to serve. An entry of this term is visible, so all that earlier leaders
// wrote is as well. The locks are loaded into memory first: until then nothing may be
// read or evaluated.
func (t *Tablet) lead() {
	if err := t.memory.Lead(t.descriptor, t.group.Term()); err != nil {
		t.fail(err)
		return
	}
	t.leading = true
	t.cfg.Metrics.Led.Add(1)
	t.history.forget()
	t.beginPass()
	// Read workers compare it with the term of their capture.
	t.reads.term.Store(t.group.Term())
	t.publishLeadership()
	t.host.Leading(t.descriptor)
	t.goOnChanging()
}
