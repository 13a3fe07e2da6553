package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Ticks and quiescence of a group. This file owns the tick counters.
//
// A group in which nothing happens is not ticked (design section 5). Its leader, once it
// has nothing under way and all replicas on live nodes have everything, says so in a last heartbeat
// and rests; a follower that has everything rests with it. A mutation, a message, or the
// suspicion of the leader's node wakes a replica. A follower that has not heard the last
// heartbeat misses its leader after a while, asks for votes, and so wakes the others.
//
// Reads do not wake a quiescent group: the leader sends its ReadIndex once, and the followers
// answer it. Only if no quorum has answered after a while does the tablet wake the group, and the
// ReadIndex goes with every heartbeat. Otherwise meta, which is read every few seconds, would be
// ticked for half a second each time, on all nodes.

const (
	// restTicks is the number of idle ticks of a leader before the group quiesces.
	restTicks = 10
	// boostTicks is the number of ticks for which a replica repeats its candidacy: the first
	// replica of a new tablet while the others start, and the first voter after its leader has died
	// until the others' promises have run out.
	boostTicks = 2 * ElectionTicks
	// silentTicks is how long a follower waits for a leader that sends nothing although its node is
	// alive, before it has the support of that node withdrawn.
	silentTicks = 2 * ElectionTicks
	// seekTicks is the interval at which a replica without a leader queries the others.
	seekTicks = 4 * ElectionTicks
)

// Start starts the replica's clock. The only voter wins its election at once. With boost the
// replica campaigns at once and repeatedly: it led the tablet before a split or a merge. All others
// first wait for a leader. A stale replica only reports itself to the others.
func (g *Group) Start(boost bool) {
	g.Wake()
	if g.stale {
		g.wakeOthers()
		return
	}
	if boost {
		g.electionBoost = boostTicks
	}
	if g.single || boost {
		g.campaign()
	}
}

// campaign starts an election if this replica may, with PreVote, so that an election it cannot win
// disturbs no other replica. A barred replica campaigns later, in Tick.
func (g *Group) campaign() {
	if g.promise.barred() {
		g.electionBoost = max(g.electionBoost, 1)
		g.unquiesce()
		return
	}
	if err := g.raft.Campaign(); err != nil {
		g.cfg.Logger.Warn("cannot begin an election", "tablet", g.cfg.Tablet, "error", err)
	}
}

// Quiesced reports whether the replica is quiescent: it need not be ticked.
func (g *Group) Quiesced() bool { return g.quiesced }

// Wake ends the replica's rest, except in a group of one replica, which needs no time.
func (g *Group) Wake() {
	if g.idleTicks = 0; !g.solo {
		g.unquiesce()
	}
}

// WakeForChange wakes this replica after a change of the replicas, also if it is the only one and
// does not lead: it may not have campaigned when it started, because it had not applied all
// changes.
func (g *Group) WakeForChange() {
	g.Wake()
	if !g.elected {
		g.unquiesce()
	}
}

func (g *Group) unquiesce() { g.quiesced = false }

func (g *Group) rest() { g.idleTicks, g.quiesced = 0, true }

// SeekLeader wakes a quiescent follower that a client has mistaken for the leader, and makes it ask
// the other replicas for the leader.
func (g *Group) SeekLeader() {
	if g.quiesced && !g.elected && !g.solo {
		g.Wake()
		g.wakeOthers()
	}
}

// wakeOthers sends every other replica an envelope without a message, which wakes it: a leader at
// rest then sends heartbeats.
func (g *Group) wakeOthers() {
	for _, r := range g.descriptor.GetReplicas() {
		if r.ReplicaId != g.cfg.Replica {
			g.messages = append(g.messages, g.envelope(r.ReplicaId))
		}
	}
}

// Tick advances the clock by one interval. transferFailed reports that a leadership transfer
// failed.
func (g *Group) Tick() (transferFailed bool) {
	g.clock++
	if g.stale {
		if g.clock%seekTicks == 0 {
			g.wakeOthers()
		}
		return false
	}
	if g.elected || !g.cfg.Host.Full() { // a follower that cannot write cannot be elected
		g.tickRaft()
	}
	switch {
	case g.leader != 0:
	case g.electionBoost > 0 && !g.promise.barred():
		// A candidate is left alone: its votes may be on their way.
		if g.electionBoost--; g.raft.BasicStatus().RaftState != raft.StateCandidate {
			g.campaign()
		}
	default:
		if g.TicksWithoutLeader()%seekTicks == 0 {
			g.wakeOthers()
		}
	}
	transferFailed = g.tickTransfer()
	g.leaveFullNode()
	return transferFailed
}

// tickRaft advances raft's clock. That of a barred follower stops one tick short of the election
// timeout, so that no election begins, and one can begin soon after the promise has run out.
func (g *Group) tickRaft() {
	if g.silent++; !g.elected && g.silent >= ElectionTicks && g.promise.barred() {
		if g.silent%ElectionTicks == 0 {
			g.wakeOthers() // a leader that is woken sends heartbeats
		}
		if g.silent >= silentTicks {
			g.promise.refuse()
		}
		return
	}
	g.raft.Tick()
}

// MaybeQuiesce is called after every tick and quiesces the group once it has been idle for a while.
// busy reports work of this leader that is unknown to the group.
func (g *Group) MaybeQuiesce(busy bool) {
	if g.solo {
		if g.elected {
			g.rest()
		}
		return
	}
	if busy {
		g.idleTicks = 0
		return
	}
	complete, idle := g.idle()
	if !idle {
		g.idleTicks = 0
		return
	}
	if g.idleTicks++; g.idleTicks < restTicks {
		return
	}
	for _, id := range complete {
		g.post(&raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), To: &id, From: &g.cfg.Replica,
			Term: proto.Uint64(g.term), Commit: proto.Uint64(g.last),
		}, true)
	}
	g.rest()
}

// idle reports whether this leader has nothing in flight and all replicas have all entries.
// Replicas on dead nodes are ignored until NodeUp, as long as the others form a quorum. Without a
// quorum the leader stays awake until raft's CheckQuorum ends its leadership.
// complete are the other replicas with all entries: only they may be told that everything is
// committed.
func (g *Group) idle() (complete []uint64, idle bool) {
	if !g.elected || g.visible != g.last || g.Transferring() || IsJoint(g.descriptor) ||
		!g.hasQuorum() {
		return nil, false
	}
	idle = true
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		switch node := g.nodes[id]; {
		case id == g.cfg.Replica:
		case p.Match == g.last && p.State == tracker.StateReplicate:
			complete = append(complete, id)
		case node == 0 || !g.cfg.Host.Down(node):
			idle = false
		}
	})
	return complete, idle
}

// complete reports whether the message is a heartbeat of this follower's leader whose commit index
// is the last entry of the follower's log.
func (g *Group) complete(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeat && !g.elected && m.GetTerm() == g.term &&
		m.GetFrom() == g.leader && m.GetCommit() == g.last
}

// answeredAtRest reports whether a replica stays quiescent after the message: the question of a
// quiescent leader's read to a follower that has everything, and any answer to a heartbeat.
func (g *Group) answeredAtRest(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeatResp || len(m.GetContext()) > 0 && g.complete(m)
}

// NodeDown reports that the node is believed dead. If it led, or no leader is known, the first of the
// other voters campaigns as soon as the promises of the voters have run out, and the others if that
// fails. A quiescent leader left without a quorum wakes, so that CheckQuorum makes it step down.
func (g *Group) NodeDown(node uint64) {
	if g.stale {
		return
	}
	if g.elected && !g.hasQuorum() {
		g.Wake()
	}
	if g.elected || g.leader != 0 && g.LeaderNode() != node {
		return
	}
	g.Wake()
	if err := g.raft.ForgetLeader(); err != nil {
		g.cfg.Logger.Warn("cannot forget the dead leader", "tablet", g.cfg.Tablet, "error", err)
	}
	if g.promise.to.node == node {
		g.promise.refuse()
	}
	first := g.cfg.Replica
	for _, r := range g.descriptor.Replicas {
		if !r.Learner && r.ReplicaId < first && !g.cfg.Host.Down(r.NodeId) {
			first = r.ReplicaId
		}
	}
	if first == g.cfg.Replica {
		// The others' promises may run out later than this node's.
		if g.cfg.Leases != nil {
			g.electionBoost = boostTicks
		}
		g.campaign()
	}
}

// NodeUp reports that the node is believed alive again. A leader wakes if the group has a replica
// there, and brings it up to date.
func (g *Group) NodeUp(node uint64) {
	if !g.elected {
		return
	}
	for id, on := range g.nodes {
		if on == node && id != g.cfg.Replica {
			g.Wake()
			return
		}
	}
}

// TicksWithoutLeader returns the number of ticks for which this replica has known no leader; it
// means nothing while a leader is known. A replica without a leader is not quiescent, so its clock
// runs.
func (g *Group) TicksWithoutLeader() uint64 { return g.clock - g.leaderLost }

// Progress returns the progress of each replica, or nil from a replica that does not lead.
func (g *Group) Progress() []*pb.ReplicaProgress {
	if !g.elected {
		return nil
	}
	out := make([]*pb.ReplicaProgress, 0, len(g.nodes))
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if r := Replica(g.descriptor, id); r != nil {
			out = append(out, &pb.ReplicaProgress{
				Replica: r, Match: p.Match, Active: id == g.cfg.Replica || g.active(id),
				Snapshot: p.State == tracker.StateSnapshot, Stale: g.stalePeers[id],
			})
		}
	})
	return out
}
