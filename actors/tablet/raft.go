package tablet

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/store"
)

// appended comes back from the log actor: the entries and the HardState are synced.
type appended struct {
	entries   []*raftpb.Entry
	hard      *raftpb.HardState
	responses []*raftpb.Message
	truncated uint64
	err       error
}

// ready hands on what Raft has to say, until it is silent. Storage messages go to the log actor in order; their answers
// come back as messages.
func (t *Tablet) ready() {
	if t.failed != nil {
		return
	}
	for t.failed == nil && t.node.HasReady() {
		rd := t.node.Ready()
		t.onState(&rd)
		for _, rs := range rd.ReadStates {
			t.onReadState(rs)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				t.append(m)
			case raft.LocalApplyThread:
				t.apply(m)
			default:
				t.transmit(m)
			}
		}
		t.countCommitted()
	}
}

// onState takes note of term and leader. A leader that is one no more, or in another term, steps down before anything else
// of the Ready is looked at.
func (t *Tablet) onState(rd *raft.Ready) {
	if rd.HardState != nil && rd.HardState.GetTerm() != t.term {
		t.term = rd.HardState.GetTerm()
		t.asked = 0
	}
	if rd.SoftState == nil {
		if t.leading && t.servedTerm.Load() != t.term {
			t.stepDown(errLost)
		}
		return
	}
	led := t.elected
	t.elected = rd.SoftState.RaftState == raft.StateLeader
	if led && !t.elected && t.solo {
		t.rouse() // nobody else will ask for votes
	}
	if t.leading && (!t.elected || t.servedTerm.Load() != t.term) {
		t.stepDown(errLost)
	}
	if rd.SoftState.Lead != t.leader {
		t.leader = rd.SoftState.Lead
		t.onLeader()
	}
	if t.elected {
		t.tryLead()
	}
}

// append sends a MsgStorageAppend to the log actor, and with it a truncation that has become due. What is more than one
// Badger Txn takes goes in several, in order.
func (t *Tablet) append(m *raftpb.Message) {
	through, index := t.goesThrough(m.Entries), t.index
	if through {
		index = m.Entries[len(m.Entries)-1].GetIndex()
	}
	a := &appended{entries: m.Entries, hard: t.hardState(m, index), responses: m.Responses}
	if len(a.entries) == 0 && len(a.responses) == 0 && a.hard == nil {
		return // the commit index that was written with its entry
	}
	for _, e := range a.entries {
		t.logSizes.append(e.GetIndex(), len(e.Data))
		t.last = e.GetIndex()
	}
	batches := t.log.AppendSplit(a.entries, a.hard, t.store.MaxBatchBytes()-entryReserve)
	last := batches[len(batches)-1]
	if through {
		a.err = t.writeThrough(last, a.entries)
	}
	if last.Size() > t.store.MaxBatchBytes()-store.TruncateBytes { // no room for the deletes as well
		last = &store.Batch{}
		batches = append(batches, last)
	}
	if a.err == nil {
		a.truncated, a.err = t.truncate(last)
	}
	if a.err != nil {
		t.fail(a.err)
		return
	}
	if len(a.entries) == 0 && len(a.responses) == 0 {
		last.SetLazy() // a commit index alone: nobody waits for it, and it can be learnt again
	}
	for _, b := range batches[:len(batches)-1] {
		// The last brings the same error.
		t.logs.send(&write{batch: b, stream: t.writes, log: true, done: func(error) {}})
	}
	t.logs.send(&write{batch: last, stream: t.writes, log: !through || broken.EarlyThrough, done: func(err error) {
		a.err = err
		t.root.Send(t.self, a)
	}})
}

func (t *Tablet) onAppended(m *appended) {
	if m.err != nil {
		t.fail(m.err)
		return
	}
	t.log.Appended(m.entries, m.hard)
	if broken.EarlyAck {
		for _, p := range t.inflight {
			p.deliver()
		}
	}
	if m.truncated > 0 {
		t.log.Truncated(m.truncated)
	}
	t.step(m.responses)
	t.ready()
	t.overlap()
}

// overlap goes on with the next batch as soon as an entry is committed, not only when it is applied.
func (t *Tablet) overlap() {
	if t.failed == nil && t.leading {
		t.takeHeld()
		t.ready()
	}
}

// step gives Raft the answers that are for this replica, and sends the others to theirs: what they rest on is durable now.
func (t *Tablet) step(responses []*raftpb.Message) {
	for _, r := range responses {
		if r.GetTo() != t.replica {
			t.transmit(r)
			continue
		}
		// A replica that is not of its group any more acknowledges nothing, not even to itself.
		if err := t.node.Step(r); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
			t.fail(err)
			return
		}
	}
}
