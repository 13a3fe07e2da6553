package tablet

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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

// keptEntries is how many applied entries stay in the log, and keptBytes how many bytes of them; they are dropped in lots of
// truncateEvery, or truncateBytes.
const (
	keptEntries   = 256
	keptBytes     = 4 << 20
	truncateEvery = 512
	truncateBytes = 16 << 20
)

// truncate adds the deletion of entries that are applied. Their effects were committed before it, so no power loss takes
// the effects and leaves the deletion (store.Writer: what survives is a prefix). It returns the new first index less one, or 0.
func (t *Tablet) truncate(b *store.Batch) (uint64, error) {
	if t.visible < t.truncated+keptEntries+truncateEvery && t.logSizes.total < truncateBytes {
		return 0, nil
	}
	keep := min(keptEntries, t.logSizes.lastWithin(t.visible, keptBytes))
	if t.visible <= t.truncated+keep {
		return 0, nil
	}
	upTo, err := t.log.Truncate(b, t.visible-keep)
	t.truncated = max(t.truncated, upTo)
	t.logSizes.truncate(t.truncated)
	return upTo, err
}

// logSizes are the sizes of the log's entries that were appended since the replica was opened, by index.
type logSizes struct {
	first uint64 // index of sizes[0]
	sizes []int
	total int
}

// append notes one entry; one that is there already is overwritten, with all behind it.
func (l *logSizes) append(index uint64, size int) {
	if len(l.sizes) == 0 || index < l.first {
		l.first, l.sizes, l.total = index, l.sizes[:0], 0
	}
	for uint64(len(l.sizes)) > index-l.first {
		l.total -= l.sizes[len(l.sizes)-1]
		l.sizes = l.sizes[:len(l.sizes)-1]
	}
	l.sizes = append(l.sizes, size)
	l.total += size
}

// truncate forgets the entries up to an index.
func (l *logSizes) truncate(index uint64) {
	for len(l.sizes) > 0 && l.first <= index {
		l.total -= l.sizes[0]
		l.sizes, l.first = l.sizes[1:], l.first+1
	}
}

// lastWithin is how many of the entries up to an index, counted from the last, are within so many bytes together.
func (l *logSizes) lastWithin(index uint64, bytes int) (n uint64) {
	for i := index; i >= l.first && i-l.first < uint64(len(l.sizes)); i-- {
		if bytes -= l.sizes[i-l.first]; bytes < 0 {
			return n
		}
		n++
	}
	return max(n, keptEntries) // entries from before are as many as there are
}
