package group

import (
	"encoding/binary"
	"maps"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Messages from and to other replicas. This file owns the record of the replicas heard from, and of
// their nodes. Raft assumes that its peers are correct and panics otherwise, so each message is
// checked before raft gets it.

// Incoming is a message of another replica.
type Incoming struct {
	*wire.RaftMessage
	Raft *raftpb.Message // nil: there is none, or it cannot be read
}

// Decode reads the envelope's message.
func Decode(m *wire.RaftMessage) *Incoming {
	in := &Incoming{RaftMessage: m}
	if message := new(raftpb.Message); len(m.GetMessage()) > 0 &&
		proto.Unmarshal(m.Message, message) == nil {
		in.Raft = message
	}
	return in
}

// lastContact is the node and time, in this replica's ticks, of another replica's last message.
type lastContact struct{ node, at uint64 }

// maxHeard is the number of remembered senders at which those that are not in the group are
// dropped.
const maxHeard = 64

// active reports whether the other replica has sent a message recently, is not stale, and is on a
// node that is not believed dead.
func (g *Group) active(replica uint64) bool {
	h, ok := g.heard[replica]
	return ok && !g.stalePeers[replica] && g.clock-h.at <= ElectionTicks && !g.cfg.Host.Down(h.node)
}

// hear records the sender of the message. Replicas that have left the group are dropped first if
// there are too many.
func (g *Group) hear(in *Incoming) {
	if _, known := g.heard[in.FromReplica]; !known && len(g.heard) >= maxHeard {
		maps.DeleteFunc(g.heard, func(id uint64, _ lastContact) bool {
			_, member := g.nodes[id]
			return !member
		})
	}
	g.heard[in.FromReplica] = lastContact{node: in.FromNode, at: g.clock}
}

// Step passes another replica's message to raft if it is valid for its sender; all others are
// dropped. A returned descriptor means that this replica no longer belongs to its group and must
// end.
func (g *Group) Step(in *Incoming) (removedBy *pb.TabletDescriptor) {
	if in.TabletId != g.cfg.Tablet || in.FromReplica == 0 || in.FromReplica == g.cfg.Replica {
		return nil
	}
	d := in.Tablet
	if d.GetTabletId() == g.cfg.Tablet && d.GetEpoch() > g.descriptor.GetEpoch() &&
		WasRemoved(d, g.cfg.Replica) {
		return d // the entry that removed this replica may never reach it
	}
	if !g.forUs(in) || in.Raft == nil || g.rejectStale(in) || !g.sound(in.Raft) {
		return nil
	}
	g.hear(in)
	if g.unwritable(in.Raft) {
		return nil
	}
	rests := in.Quiesce && g.complete(in.Raft)
	switch {
	case rests:
		g.dropHeartbeatResp = true // an answer to the heartbeat would wake the leader
		g.rest()
	case g.quiesced && !g.answeredAtRest(in.Raft):
		g.Wake()
	}
	if g.promise.barsVote(in) {
		return nil
	}
	g.fortifiedBy(in)
	_ = g.raft.Step(in.Raft) // raft refuses answers of replicas outside of the group
	g.hearLeader(in)
	return nil
}

// forUs reports whether the message is for this replica and its sender is correct. A sender that
// was removed from the group is informed, because it may not have received its removal. An envelope
// without a message only wakes this replica, or reports that its sender is stale.
func (g *Group) forUs(in *Incoming) bool {
	switch {
	case in.ToReplica != g.cfg.Replica:
		return false
	case WasRemoved(g.descriptor, in.FromReplica) && (in.Stale || len(in.Message) > 0):
		out := g.envelope(in.FromReplica)
		out.ToNode, out.Tablet = in.FromNode, g.descriptor
		g.messages = append(g.messages, out)
		return false
	case in.Raft == nil && len(in.Message) == 0:
		if in.Stale && g.nodes[in.FromReplica] != 0 {
			g.stalePeers[in.FromReplica] = true
		}
		g.Wake()
		return false
	}
	return in.Raft == nil || (in.Raft.GetFrom() == in.FromReplica &&
		in.Raft.GetTo() == in.ToReplica)
}

// sound reports whether the message is of a type that replicas send each other, and raft can
// process it without a panic.
func (g *Group) sound(m *raftpb.Message) bool {
	if m.GetTerm() == 0 {
		return false // raft would take it for a message of this replica itself
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return soundEntries(m)
	case raftpb.MsgAppResp:
		return m.GetReject() || m.GetTerm() != g.term || m.GetIndex() <= g.last
	case raftpb.MsgHeartbeat:
		return m.GetTerm() < g.term || m.GetCommit() <= g.last
	case raftpb.MsgHeartbeatResp:
		ctx := m.GetContext()
		return len(ctx) == 0 || (len(ctx) == 8 &&
			(m.GetTerm() != g.term || binary.LittleEndian.Uint64(ctx) <= g.asked))
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// soundEntries reports whether the entries follow one another, and none is of a later term
// than the message.
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

// unwritable reports whether raft must not see the message now, because its answer would have to
// wait for disk space: it will be sent again. A node without space is also unsuitable as a leader.
func (g *Group) unwritable(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgTimeoutNow:
		return g.cfg.Host.NoRoom() != nil
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return g.cfg.Host.Full()
	}
	return false
}

// transmit queues a message for another replica's node. It may be lost. Sending a snapshot is left
// to the caller. A stale replica sends neither.
func (g *Group) transmit(m *raftpb.Message) (s Snapshot) {
	if g.stale {
		return s
	}
	switch m.GetType() {
	case raftpb.MsgSnap:
		return g.beginSnapshot(m)
	case raftpb.MsgHeartbeatResp:
		if g.dropHeartbeatResp {
			return s
		}
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote,
		raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgTimeoutNow:
	default: // raft's other messages forward requests to the leader: drop them
		return s
	}
	g.post(m, false)
	return s
}

// post adds the message to the next Ready, with the descriptor unless the other replica is active:
// its node may have to create the replica first, even one that it had before, if its directory is
// an older copy.
func (g *Group) post(m *raftpb.Message, quiesce bool) {
	data, err := proto.Marshal(m)
	if err != nil {
		g.err = err // cannot happen: raft made the message
		return
	}
	out := g.envelope(m.GetTo())
	out.Message, out.Quiesce = data, quiesce
	out.SupportEpoch = g.fortify(m)
	if m.GetType() == raftpb.MsgHeartbeat {
		out.Match = g.match(m.GetTo())
	}
	if !g.active(m.GetTo()) {
		out.Tablet = g.descriptor
	}
	if out.ToNode != 0 {
		g.messages = append(g.messages, out)
	}
}

func (g *Group) envelope(to uint64) *wire.RaftMessage {
	node, ok := g.nodes[to]
	if !ok {
		node = g.heard[to].node // this replica's descriptor does not list it
	}
	return &wire.RaftMessage{
		TabletId: g.cfg.Tablet, FromNode: g.cfg.Node, FromReplica: g.cfg.Replica, ToNode: node,
		ToReplica: to, Stale: g.stale,
	}
}

// Snapshot is a snapshot that another replica needs. The caller sends it.
type Snapshot struct {
	To, Node uint64
	Index    uint64          // of the snapshot that raft has chosen; the one sent may be later
	Message  *raftpb.Message // the MsgSnap
}

// beginSnapshot returns the snapshot that a MsgSnap requests. It returns zero if an earlier one is
// still being sent to the replica, whose end counts for this one too, or if the replica's node is
// unknown.
func (g *Group) beginSnapshot(m *raftpb.Message) (s Snapshot) {
	to := m.GetTo()
	if _, underWay := g.retention.snapshots[to]; underWay {
		return s
	}
	node := Replica(g.descriptor, to).GetNodeId()
	if node == 0 {
		g.raft.ReportSnapshot(to, raft.SnapshotFailure)
		return s
	}
	s = Snapshot{To: to, Node: node, Index: m.GetSnapshot().GetMetadata().GetIndex(), Message: m}
	g.retention.holdLog(to, s.Index)
	return s
}

// SnapshotEnded is called once for every Snapshot: with begun false if it could not be sent at all.
// Raft then probes the replica's position and continues from the log, or requests another snapshot.
//
// A snapshot that was sent and refused is reported like a successful one. On a reported failure
// raft would use its record of the replica, which is empty in a new leader, and would request the
// next snapshot at once. But the replica may have received the last leader's snapshot in between,
// which is why it refused this one, or it has received this one and only the answer was lost.
func (g *Group) SnapshotEnded(to uint64, begun bool) {
	delete(g.retention.snapshots, to)
	status := raft.SnapshotFinish
	if !begun {
		status = raft.SnapshotFailure
	}
	g.raft.ReportSnapshot(to, status)
}
