package tablet

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// In a group whose only voter is its leader an entry is committed as soon as it is durable. So what it does is written with
// it, in one Txn that becomes visible once it is synced (docs/adr/0018). Raft learns that it is durable and says that it is
// committed, as ever; only then it counts as applied and its callers are answered.

// throughBytes is how long entries are at most that are written so: with their effects they fit one Txn, and with longer ones
// it is the bytes that take the time.
const throughBytes = 512 << 10

// through is what is written, or being written, with its entries, and does not count yet.
type through struct {
	waiting   []*applied // for Raft to commit it, in the order of the log
	committed []*applied // to count once all is handed on that Raft has said with it
}

// goesThrough reports whether the entries may be written together with what they do: everything before them is handed on to be
// applied, so the configuration is the one that commits them, and they have nothing but effects.
func (t *Tablet) goesThrough(entries []*raftpb.Entry) bool {
	if !t.leading || !t.single || t.cfg.apart || len(entries) == 0 || entries[0].GetIndex() != t.index+1 || len(t.inflight)-t.matched < len(entries) {
		return false
	}
	bytes := 0
	for i, e := range entries {
		p := t.inflight[t.matched+i]
		if e.GetType() != raftpb.EntryNormal || e.GetTerm() != t.term || p.conf != nil || !effectsOnly(p.command) {
			return false
		}
		bytes += len(e.Data)
	}
	return bytes <= throughBytes
}

// writeThrough adds to the batch that appends the entries what they do.
func (t *Tablet) writeThrough(b *store.Batch, entries []*raftpb.Entry) error {
	for _, e := range entries {
		a := &applied{index: e.GetIndex(), term: e.GetTerm()}
		if err := t.applyCommand(b, a, e); err != nil {
			return err
		}
		a.proposal.through = true
		t.index, t.entryTerm = a.index, a.term
		t.through.waiting = append(t.through.waiting, a)
	}
	b.PutApplied(t.id, t.appliedRecord())
	return nil
}

// take returns what was written with the entry that is committed now, if it was.
func (w *through) take(index uint64) (a *applied, written bool) {
	if len(w.waiting) == 0 || w.waiting[0].index != index {
		return nil, false
	}
	a, w.waiting = w.waiting[0], w.waiting[1:]
	w.committed = append(w.committed, a)
	return a, true
}

// countCommitted has count what was written with its entries.
func (t *Tablet) countCommitted() {
	for t.failed == nil && len(t.through.committed) > 0 {
		a := t.through.committed[0]
		t.through.committed = t.through.committed[1:]
		t.onApplied(a)
	}
}

// hardState is the HardState to write with an append, nil if it is written. What has its effects written up to an index is
// committed up to there: else Raft would refuse to start with them.
func (t *Tablet) hardState(m *raftpb.Message, index uint64) *raftpb.HardState {
	term, vote, commit := t.hard.GetTerm(), t.hard.GetVote(), t.hard.GetCommit()
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		term, vote, commit = m.GetTerm(), m.GetVote(), m.GetCommit()
	}
	commit = max(commit, index)
	if term == t.hard.GetTerm() && vote == t.hard.GetVote() && commit == t.hard.GetCommit() {
		return nil
	}
	t.hard = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	return t.hard
}

// early reports whether what has gathered may be evaluated while the entry before it is being written: once it is as many as
// went into that, for then the log actor would only wait for it. What is fewer gathers on, so that batches do not get smaller
// and syncs more.
func (t *Tablet) early() bool {
	n := len(t.inflight)
	return n == t.cfg.Pipeline && t.inflight[n-1].through && len(t.held) >= t.taken
}

// effectsOnly reports whether the command changes nothing but rows.
func effectsOnly(c *wire.Command) bool {
	return c.Split == nil && c.Catalogue == nil && c.RaiseMark == 0 && c.Bound == 0 && c.Safepoint == 0 &&
		c.Replicas == nil && c.Checksum == 0 && c.Sized == nil
}
