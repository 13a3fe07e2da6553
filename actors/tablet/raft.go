package tablet

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/broken"
)

// appended comes back from the log actor: the entries and the HardState are synced.
type appended struct {
	responses []*raftpb.Message
	err       error
}

// ready hands on what Raft has to say, until it is silent. Storage messages go to the log
// actor in order; their answers come back as messages.
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
	}
}

// onState takes note of term and leader. A leader that is one no more, or in another
// term, steps down before anything else of the Ready is looked at.
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

// append sends a MsgStorageAppend to the log actor, and with it a truncation that has
// become due. A commit index that moves alone waits for the next entries. With them it
// must be in the log, though Raft does not say it again: after a crash the replica begins
// with the configuration of its checkpoint, and if it did not know which changes of it
// are committed it could be elected by voters that are none any more.
func (t *Tablet) append(m *raftpb.Message) {
	voted := t.onHardState(m)
	if len(m.Entries) == 0 && len(m.Responses) == 0 && !voted {
		return
	}
	hard := t.hard
	if broken.ForgetCommit && m.Commit == nil {
		hard = nil
	}
	if len(m.Entries) > 0 {
		// What these take the place of was never committed: nothing of it is visible.
		t.replayed = min(t.replayed, m.Entries[0].GetIndex()-1)
	}
	for _, e := range m.Entries {
		t.logSizes.append(e.GetIndex(), len(e.Data))
		t.last = e.GetIndex()
	}
	to, err := t.truncateTo()
	if err != nil {
		t.fail(err)
		return
	}
	a := &appended{responses: m.Responses}
	w := &write{append: &logAppend{tablet: t.id, entries: m.Entries, hard: hard, truncate: to}, stream: t.writes}
	w.done = func(err error) {
		a.err = err
		t.root.Send(t.self, a)
	}
	t.logs.append(w)
}

// onHardState takes note of the HardState in a MsgStorageAppend, if there is one. It
// reports whether it brings more than a commit index.
func (t *Tablet) onHardState(m *raftpb.Message) (voted bool) {
	if m.Term == nil && m.Vote == nil && m.Commit == nil {
		return false
	}
	voted = m.GetTerm() != t.hard.GetTerm() || m.GetVote() != t.hard.GetVote()
	term, vote, commit := m.GetTerm(), m.GetVote(), m.GetCommit()
	t.hard = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	return voted
}

func (t *Tablet) onAppended(m *appended) {
	if m.err != nil {
		t.fail(m.err)
		return
	}
	if broken.EarlyAck {
		for _, p := range t.inflight {
			p.deliver()
		}
	}
	t.step(m.responses)
	t.ready()
	t.overlap()
}

// overlap goes on with the next batch as soon as an entry is committed, not only when it
// is applied.
func (t *Tablet) overlap() {
	if t.failed == nil && t.leading {
		t.takeHeld()
		t.ready()
	}
}

// step gives Raft the answers that are for this replica, and sends the others to theirs:
// what they rest on is durable now.
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
