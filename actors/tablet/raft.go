package tablet

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
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
		if rd.HardState != nil {
			t.term = rd.HardState.GetTerm()
		}
		if rd.SoftState != nil && rd.SoftState.RaftState != raft.StateLeader && t.leading {
			t.stepDown(errLost)
		}
		for _, rs := range rd.ReadStates {
			t.onReadState(rs)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				t.append(m)
			case raft.LocalApplyThread:
				t.apply(m)
			}
		}
	}
}

// append sends a MsgStorageAppend to the log actor, and with it a truncation that has become due. What is more than one
// Badger Txn takes goes in several, in order.
func (t *Tablet) append(m *raftpb.Message) {
	a := &appended{entries: m.Entries, responses: m.Responses}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		a.hard = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	for _, e := range a.entries {
		t.logSizes.append(e.GetIndex(), len(e.Data))
	}
	batches := t.log.AppendSplit(a.entries, a.hard, t.store.MaxBatchBytes()-entryReserve)
	last := batches[len(batches)-1]
	if a.truncated, a.err = t.truncate(last); a.err != nil {
		t.fail(a.err)
		return
	}
	if len(a.entries) == 0 && len(a.responses) == 0 {
		last.SetLazy() // a commit index alone: nobody waits for it, and it can be learnt again
	}
	for _, b := range batches[:len(batches)-1] {
		t.logs.send(&write{batch: b, done: func(error) {}}) // the last brings the same error
	}
	t.logs.send(&write{batch: last, done: func(err error) {
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
	if m.truncated > 0 {
		t.log.Truncated(m.truncated)
	}
	t.step(m.responses)
	t.ready()
}

// step gives Raft the answers that are for this replica.
func (t *Tablet) step(responses []*raftpb.Message) {
	for _, r := range responses {
		if r.GetTo() != replicaID {
			continue // other replicas come with the cluster
		}
		if err := t.node.Step(r); err != nil {
			t.fail(err)
			return
		}
	}
}
