package tablet

import (
	"go.etcd.io/raft/v3/raftpb"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// What a replica does while its node's disk is full. Raft hands out what is to be written once, so
// a writer keeps what the store refuses for want of room, and writes it when there is some.
// Until then the replica takes nothing on that would have to be written: a leader proposes nothing,
// a follower is deaf to appends, as if they were lost on the way. It acknowledges nothing, and goes
// on reading. All of it runs on the tablet's goroutine.

// noRoom returns store.ErrDiskFull, wrapped, while nothing may be taken on that has to be written.
func (t *Tablet) noRoom() error {
	if t.logs.Full() {
		return store.ErrDiskFull
	}
	return t.store.Exhausted()
}

// diskFullRetryMs is when to ask again that another voter may lead by then.
const diskFullRetryMs = 250

// diskFull is the answer to a write that there is no room for. Where another node could lead the
// tablet it says when to try again.
func (t *Tablet) diskFull(err error) *pb.TabletResponse {
	r := failure(pb.Error_CODE_DISK_FULL, "node takes no writes: %v", err)
	if !t.single {
		r.Error.RetryAfterMs = diskFullRetryMs
	}
	return r
}

// unwritable reports whether Raft must not see the message now, since its answer would have to wait
// for room: it sends again. A node without room is no place for a leader either.
func (t *Tablet) unwritable(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgTimeoutNow:
		return t.noRoom() != nil
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return t.logs.Full()
	}
	return false
}

// mayTick reports whether time may pass for Raft: a follower that cannot write cannot be elected.
func (t *Tablet) mayTick() bool { return t.elected || !t.logs.Full() }

// leaveFull has another voter lead while entries of this leader wait for room: nothing that is
// proposed here would be applied, and reads of it wait. The voters are tried in turn, as any of
// them may be without room too; Raft gives each up after an election timeout.
func (t *Tablet) leaveFull() {
	if !t.elected || !t.logs.Full() || t.transfer != nil || t.node.BasicStatus().LeadTransferee != 0 {
		return
	}
	replicas := t.descriptor.GetReplicas()
	for i := range replicas {
		r := replicas[(t.clock+uint64(i))%uint64(len(replicas))]
		if heir := t.heir(r.GetNodeId()); heir != 0 {
			t.node.TransferLeader(heir)
			return
		}
	}
}
