package tablet

import (
	"encoding/binary"
	"maps"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// incoming is a message of another replica, in its tablet's mailbox.
type incoming struct {
	*wire.RaftMessage
	message *raftpb.Message // nil: there is none, or it cannot be read
}

// Receive hands a message of another node to the replica at pid, which judges it. It does
// not block; a message for a replica that has stopped is lost, as any may be.
func Receive(system *actor.ActorSystem, pid *actor.PID, m *wire.RaftMessage) {
	in := &incoming{RaftMessage: m}
	if len(m.GetMessage()) > 0 {
		message := &raftpb.Message{}
		if proto.Unmarshal(m.Message, message) == nil {
			in.message = message
		}
	}
	system.Root.Send(pid, in)
}

// hearing is where another replica was heard from last, and when, in this one's ticks.
type hearing struct{ node, at uint64 }

// active reports whether the other replica has been heard of lately, and its node is not
// believed dead.
func (t *Tablet) active(replica uint64) bool {
	h, ok := t.heard[replica]
	return ok && t.clock-h.at <= electionTicks && !t.down(h.node)
}

// down reports whether the node is believed dead.
func (t *Tablet) down(node uint64) bool { return t.cfg.Ticker != nil && t.cfg.Ticker.isDown(node) }

// maxHeard bounds the replicas that this one remembers to have heard of, beside the group's.
const maxHeard = 64

// hear notes where the message has come from. Those that are of the group no more make room.
func (t *Tablet) hear(in *incoming) {
	if _, known := t.heard[in.FromReplica]; !known && len(t.heard) >= maxHeard {
		maps.DeleteFunc(t.heard, func(id uint64, _ hearing) bool { _, member := t.nodes[id]; return !member })
	}
	t.heard[in.FromReplica] = hearing{node: in.FromNode, at: t.clock}
}

// transmit sends a message to another replica's node. It may be lost.
func (t *Tablet) transmit(m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgSnap:
		t.sendSnapshot(m)
		return
	case raftpb.MsgHeartbeatResp:
		if t.mute {
			return
		}
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgTimeoutNow:
	default: // what raft would forward to a leader is not forwarded here
		return
	}
	t.post(m, false)
}

// post marshals the message and hands it to the node. The descriptor goes along for as
// long as the other has not been heard of: its node may have to make the replica first.
func (t *Tablet) post(m *raftpb.Message, quiesce bool) {
	data, err := proto.Marshal(m)
	if err != nil {
		t.fail(err) // all of it is ours
		return
	}
	out := t.envelope(m.GetTo())
	out.Message, out.Quiesce = data, quiesce
	if _, heard := t.heard[m.GetTo()]; !heard {
		out.Tablet = t.descriptor
	}
	if out.ToNode != 0 {
		t.counters.sent++
		t.host.SendRaft(out)
	}
}

func (t *Tablet) envelope(to uint64) *wire.RaftMessage {
	node, ok := t.nodes[to]
	if !ok {
		node = t.heard[to].node // one that this replica does not know yet
	}
	return &wire.RaftMessage{TabletId: t.id, FromNode: t.cfg.NodeID, FromReplica: t.replica, ToNode: node, ToReplica: to}
}

// onIncoming gives Raft another replica's message if it is one that may come from there.
// All others are counted and dropped.
func (t *Tablet) onIncoming(in *incoming) {
	if t.failed != nil {
		return
	}
	if !t.forUs(in) {
		return
	}
	if in.message == nil || !t.sound(in.message) {
		t.counters.refused++
		return
	}
	t.hear(in)
	if t.unwritable(in.message) {
		return
	}
	if in.Quiesce && t.mayRest(in.message) {
		t.mute = true
		t.stepIn(in.message)
		t.mute = false
		t.sleep()
		return
	}
	if t.asleep && !t.restful(in.message) {
		t.wake()
	}
	t.stepIn(in.message)
}

func (t *Tablet) stepIn(m *raftpb.Message) {
	if err := t.node.Step(m); err != nil { // of no consequence: from a replica that is not of the group, or out of its time
		t.counters.refused++
	}
	t.ready()
	t.overlap()
}

// forUs checks sender and receiver. Who writes to an earlier replica of this node's knows
// of a later one; who is of the group no more is told so, for the others' word of it may
// not have reached it.
func (t *Tablet) forUs(in *incoming) bool {
	if in.TabletId != t.id || in.FromReplica == 0 || in.FromReplica == t.replica {
		t.counters.refused++
		return false
	}
	if d := in.Tablet; d.GetTabletId() == t.id && d.GetEpoch() > t.descriptor.GetEpoch() && withoutReplica(d, t.replica) {
		t.descriptor = d
		t.remove()
		return false
	}
	if in.ToReplica != t.replica {
		t.counters.refused++
		return false
	}
	if in.message == nil && len(in.Message) == 0 {
		t.wake() // somebody asks whether this one is awake
		return false
	}
	if withoutReplica(t.descriptor, in.FromReplica) {
		out := t.envelope(in.FromReplica)
		out.ToNode, out.Tablet = in.FromNode, t.descriptor
		t.host.SendRaft(out)
		return false
	}
	if m := in.message; m != nil && (m.GetFrom() != in.FromReplica || m.GetTo() != in.ToReplica) {
		t.counters.refused++
		return false
	}
	return true
}

// sound reports whether raft can take the message. Raft takes for granted what its own
// peers never do otherwise, and panics.
func (t *Tablet) sound(m *raftpb.Message) bool {
	if m.GetTerm() == 0 {
		return false // it would pass for a message of this replica's own
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return soundEntries(m)
	case raftpb.MsgAppResp:
		return m.GetReject() || m.GetTerm() != t.term || m.GetIndex() <= t.last
	case raftpb.MsgHeartbeat:
		return m.GetTerm() < t.term || m.GetCommit() <= t.last
	case raftpb.MsgHeartbeatResp:
		ctx := m.GetContext()
		return len(ctx) == 0 || (len(ctx) == 8 && (m.GetTerm() != t.term || binary.LittleEndian.Uint64(ctx) <= t.asked))
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// soundEntries: they follow one another, and nothing in them is of a later term than the message.
func soundEntries(m *raftpb.Message) bool {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetTerm() < term {
			return false
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	return term <= m.GetTerm()
}

// refusedBy is the answer to a call while another replica leads.
func (t *Tablet) refusedBy() *pb.TabletResponse {
	return t.notLeader("tablet %d is not led from here", t.id)
}
