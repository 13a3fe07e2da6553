package tablet

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Application of committed entries. An entry is handled twice. In the turn in which Raft
// emits it, applyEntry updates the replicated state (state.apply), passes the changes to
// the parts of the tablet that they concern (applyChange), sends the effects to the state
// actor, and answers the callers of an entry that changes only rows (answerCommitted). Once the
// effects are readable, the state actor's answer returns as an applied message, and onApplied
// updates memory, answers the other callers and resumes what waited for the effects. In between,
// state and callers are ahead of what a Snap shows: reads wait for the index, everything else for
// the proposal to leave the pipeline. Any number of entries may be under way, in order. All of it
// runs on the tablet's goroutine, except the done function of a write, which the state actor calls
// and which sends the message.

// applied is the state actor's answer: the effects of an entry are visible or, with err, could not
// be written: then this replica stops, and applies the entry again once it is reopened.
type applied struct {
	index, term uint64
	proposal    *proposal // nil: not proposed by this leadership
	change      change
	responses   []*raftpb.Message
	err         error
}

// apply sends committed entries to the state actor one by one: each of them fits one store
// batch, several together may not. The actor combines as many into one Txn as fit.
func (t *Tablet) apply(entries []*raftpb.Entry, responses []*raftpb.Message) {
	for i, e := range entries {
		a := &applied{index: e.GetIndex(), term: e.GetTerm()}
		// The responses acknowledge the whole Ready to Raft, so they go with its last entry.
		if i == len(entries)-1 {
			a.responses = responses
		}
		if err := t.applyEntry(a, e); err != nil {
			t.fail(err)
			return
		}
		if t.failed != nil { // the replica has stopped for a merge: the node reopens it
			return
		}
	}
}

// applyEntry sends the effects of one entry to the state actor, with the applied index in
// the same Txn. Most writes need no sync: after a crash the entry is applied again from the
// log, which is synced. The batches of a split and of a freeze are durable once visible. An
// entry that takes another tablet's rows is not sent: it stops the replica (takeRows).
func (t *Tablet) applyEntry(a *applied, e *raftpb.Entry) error {
	batch := &store.Batch{}
	switch {
	case len(e.Data) > 0 || e.GetType() != raftpb.EntryNormal:
		if err := t.applyCommand(batch, a, e); err != nil {
			return err
		}
	case a.term == t.group.Term() && t.pipeline.next() != nil &&
		t.pipeline.next().command.Replicas != nil:
		// Raft has replaced a configuration change that it refused with this empty entry. It
		// replaces nothing else: the empty entry that begins a leadership matches no proposal.
		a.proposal, a.change.dropped = t.pipeline.next(), true
		t.pipeline.matched++
	}
	if a.change.merge.GetRight() != nil {
		t.takeRows(a, a.change.merge)
		return nil
	}
	// From here on state is as of this entry. A dropped or empty entry advances the index too.
	t.index, t.entryTerm = a.index, a.term
	done := func(err error) {
		a.err = err
		t.self.send(a)
	}
	t.state.putApplied(batch, t.id)
	w := &writers.Write{Batch: batch, Stream: &t.writes, Done: done}
	if a.change.checksum != 0 && a.index > t.group.Replayed() {
		t.cfg.Checksums.fence(w, a, t.descriptor)
	}
	t.logs.Send(w)
	t.answerCommitted(a)
	return nil
}

// answerCommitted answers the callers of an entry that changes only rows (docs/adr/0063). Every
// later leader has the entry, and applying it can only fail together with the store, which ends
// this replica. The answers of other entries wait until the change is visible.
func (t *Tablet) answerCommitted(a *applied) {
	if p := a.proposal; p != nil && !a.change.dropped && effectsOnly(p.command) {
		p.deliver()
	}
}

// applyCommand applies the command of one entry. The command of an entry proposed by this
// leadership is still in memory; others are decoded from the entry.
func (t *Tablet) applyCommand(batch *store.Batch, a *applied, e *raftpb.Entry) error {
	command := t.pipeline.match(a, t.group.Term())
	conf, decoded, err := decodeEntry(e, command == nil)
	if err != nil {
		return fmt.Errorf("apply entry %d of tablet %d: %w", a.index, t.id, err)
	}
	if command == nil {
		command = decoded
	}
	if a.change, err = t.state.apply(batch, t.store, command); err != nil {
		return err
	}
	if !a.change.dropped {
		t.cfg.Traces.Add(command.Traces...)
		t.applyChange(&a.change, a.index, conf)
	}
	return nil
}

// applyChange passes each part of the tablet the changes of an entry that concern it.
func (t *Tablet) applyChange(c *change, index uint64, conf *raftpb.ConfChangeV2) {
	t.sizing.applied(c)
	// A leader's memory has held the catalogue, the bound and the safepoint since it proposed
	// them, and Raise never lowers them; a follower's receives them here.
	t.memory.Raise(c.catalogue, c.bound, c.safepoint)
	t.reads.RaiseSafepoint(c.safepoint)
	switch {
	case c.split != nil:
		t.group.Reconfigure(t.descriptor)
	case c.merge != nil && c.merge.Right == nil:
		t.frozenAt = index
		t.group.Reconfigure(t.descriptor)
	case c.replicas != nil:
		t.cfg.Leadership.withdraw() // before another replica can be elected
		t.conf = t.group.ApplyConfChange(conf, c.replicas)
	}
}

// decodeEntry decodes an entry. It returns its configuration change, or nil, and, if command
// is set, its command.
func decodeEntry(e *raftpb.Entry, command bool) (*raftpb.ConfChangeV2, *wire.Command, error) {
	var conf *raftpb.ConfChangeV2
	data := e.GetData()
	if e.GetType() != raftpb.EntryNormal {
		if e.GetType() != raftpb.EntryConfChangeV2 {
			return nil, nil, fmt.Errorf("unknown type %v", e.GetType())
		}
		conf = &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(data, conf); err != nil {
			return nil, nil, fmt.Errorf("decode configuration change: %w", err)
		}
		data = conf.Context
	}
	if !command {
		return conf, nil, nil
	}
	c := &wire.Command{}
	if err := proto.Unmarshal(data, c); err != nil {
		return nil, nil, fmt.Errorf("decode command: %w", err)
	}
	return conf, c, nil
}

// onApplied handles an entry whose effects are visible: it adds and removes locks in memory,
// answers callers, and resumes whatever waited for the entry.
func (t *Tablet) onApplied(m *applied) {
	if m.err == nil {
		m.err = t.group.Applied(m.index, m.term, m.responses)
	}
	if m.err != nil {
		t.fail(m.err)
		return
	}
	c := &m.change
	if c.split != nil {
		t.splitVisible(c.split)
	}
	if c.merge != nil {
		t.mergeVisible(c.merge)
	}
	var dirty []mvcc.Cell
	// A proposal lost when this replica stepped down is no longer in the pipeline: its callers
	// have been answered.
	if p := m.proposal; t.pipeline.visible(p) {
		if c.dropped {
			t.drop(p)
		} else {
			dirty = t.finish(p)
		}
	}
	if c.replicas != nil {
		t.changeVisible(c.replicas)
	}
	t.tryLead()
	t.publishLeadership() // the mark may have been raised
	if len(dirty) > 0 {
		t.host.Hint(dirty)
	}
	// There are new changes, or the waiting requests for changes are of an earlier epoch now.
	if t.changed || c.split != nil || c.merge != nil || c.replicas != nil {
		t.changed = false
		t.releaseChanges(time.Time{})
	}
	// Reads whose index is this entry can be served now.
	t.reads.dispatch()
	t.retryWaiting()
}

// drop abandons a proposal whose entry every replica drops.
func (t *Tablet) drop(p *proposal) {
	changed := wire.Failure(pb.Error_CODE_NOT_PROPOSED,
		"tablet %d was split, merged or moved before the operation was applied; try again", t.id)
	t.lose(p, changed)
	if p.collects {
		t.history.StepLost()
	}
	// Operations evaluated after the dropped one used its bounds and its catalogue, which never
	// took effect.
	t.revertToInFlight()
	if x := t.barrier.op; x != nil && (p.command.Replicas != nil || p.command.Split != nil ||
		p.command.Merge != nil) {
		x.answer(changed)
		t.endExclusive()
	}
}

// finish completes a proposal whose effects are visible: it updates the locks in memory,
// answers the calls that are not answered yet, and returns the cells that have become dirty.
func (t *Tablet) finish(p *proposal) (dirty []mvcc.Cell) {
	dirty = t.memory.VisibleLocks(p.muts, p.known)
	if !p.answered {
		p.mark("applied")
		p.deliver()
	}
	t.cfg.Metrics.Writes.Since(p.began)
	t.changed = t.memory.Visible(p.number, p.muts, p.notes) || t.changed
	t.history.Note(p.muts)
	// Only now: if a reservation were released before its effects are visible, a reader could
	// miss them.
	t.reservations.release(p.holds...)
	// The safepoint may have risen, or a table may have been dropped: there may be history to
	// collect.
	if p.command.Safepoint != 0 || p.command.Catalogue != nil {
		t.beginPass()
	}
	if p.collects {
		t.history.StepMade(p.muts)
		t.history.Pause(t.counters.operations(), t.appliedSafepoint)
	}
	return dirty
}
