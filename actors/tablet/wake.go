package tablet

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// A group in which nothing happens is not ticked (design section 5). Its leader, once it
// has nothing under way and all replicas have everything, says so in a last heartbeat and
// rests; a follower that has everything rests with it. A mutation, a message, or the
// suspicion of the leader's node wakes a replica. A follower that has not heard the last
// heartbeat misses its leader after a while, asks for votes, and so wakes the others.
//
// Reads leave a group at rest: the leader's ReadIndex goes out once, and the followers
// answer it asleep. Only if no quorum has answered by the next sweep the leader wakes,
// and asks with every heartbeat: meta is read every few seconds, and would else be ticked
// for half a second each time, on all nodes.

const (
	// quietTicks is how long a leader has nothing to do before the group rests.
	quietTicks = 10
	// hurryTicks is for how many ticks the first replica of a new tablet asks for votes
	// anew: the others come up meanwhile.
	hurryTicks = 2 * electionTicks
	// lonelyTicks is how often a replica that hears of no leader asks around.
	lonelyTicks = 4 * electionTicks
)

// begin starts the replica's time. The only voter wins its election at once. The replica
// that led what a new tablet was split from asks for votes at once. All others listen
// first.
func (t *Tablet) begin() {
	t.asleep = true
	if t.cfg.Board != nil {
		t.posted.notice = t.cfg.Board.attach(t.id)
	}
	hurried := false
	if t.cfg.Ticker != nil {
		t.beat, hurried = t.cfg.Ticker.attach(t.id, t.self)
	}
	t.wake()
	if hurried {
		t.hurried = hurryTicks
	}
	if t.single || hurried {
		t.campaign()
	}
	t.ready()
}

// end forgets the replica at its node's ticker, and on its board.
func (t *Tablet) end() {
	if n := t.posted.notice; n != nil {
		t.posted.notice = nil
		t.cfg.Board.detach(t.id, n)
	}
	if t.beat != nil {
		t.cfg.Ticker.detach(t.id, t.beat)
	}
}

// campaign asks for votes, where this replica may; first whether it would get them
// (PreVote), so that it disturbs nobody.
func (t *Tablet) campaign() {
	if err := t.node.Campaign(); err != nil {
		t.cfg.Logger.Warn("no election", "tablet", t.id, "error", err)
	}
}

// wake has the replica ticked. A group of one replica needs no time.
func (t *Tablet) wake() {
	if t.still = 0; !t.solo {
		t.rouse()
	}
}

// rouse is wake for an only replica too: one that may not have asked for votes when it
// started, because it had not applied all changes of the replicas that are committed.
func (t *Tablet) rouse() {
	if t.asleep && t.beat != nil && t.failed == nil {
		t.asleep = false
		t.cfg.Ticker.rouse(t.id, t.beat)
	}
}

func (t *Tablet) sleep() {
	t.still = 0
	if !t.asleep {
		t.asleep = true
		t.cfg.Ticker.rest(t.id, t.beat)
	}
}

// missed wakes a follower that somebody has taken for the leader, and has it ask the
// others whether there is one.
func (t *Tablet) missed() {
	if t.asleep && !t.elected && !t.solo {
		t.wake()
		t.poke()
	}
}

// poke wakes all others: a sleeping leader sends heartbeats then. It is an envelope
// without a message.
func (t *Tablet) poke() {
	for id := range t.nodes {
		if id != t.replica {
			t.host.SendRaft(t.envelope(id))
		}
	}
}

// onTick is the passing of one interval.
func (t *Tablet) onTick() {
	if t.beat != nil {
		t.beat.due.Store(false)
	}
	if t.asleep || t.failed != nil {
		return
	}
	t.clock++
	if t.mayTick() {
		t.node.Tick()
	}
	switch {
	case t.leader != 0:
	case t.hurried > 0:
		if t.hurried--; t.node.BasicStatus().RaftState != raft.StateCandidate { // whose votes may be on their way
			t.campaign()
		}
	default:
		if t.lonely++; t.lonely%lonelyTicks == 0 {
			t.poke()
		}
	}
	t.transferTick()
	t.leaveFull()
	t.goOnChanging()
	t.ready()
	t.doze()
}

// doze sends the group to rest after it has been quiet for a while.
func (t *Tablet) doze() {
	if t.solo {
		if t.elected {
			t.sleep()
		}
		return
	}
	whole, idle := t.idle()
	if !idle {
		t.still = 0
		return
	}
	if t.still++; t.still < quietTicks {
		return
	}
	for _, id := range whole {
		t.post(&raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), To: &id, From: &t.replica, Term: proto.Uint64(t.term), Commit: proto.Uint64(t.last),
		}, true)
	}
	t.sleep()
}

// idle reports whether this leader has nothing under way, and all replicas have all there is: those
// whose node is believed dead are not waited for, they will say when they are back, as long as the
// others are a quorum. Without one the leader stays awake, until raft finds that nobody answers and
// ends its leadership. whole are the others that have everything: only they may be told that all is
// committed.
func (t *Tablet) idle() (whole []uint64, idle bool) {
	if !t.leading || t.failed != nil || t.visible != t.last || t.exclusive != nil || t.transfer != nil {
		return nil, false
	}
	if len(t.inflight)+len(t.pendingReads)+len(t.reads.calls)+len(t.held)+len(t.parked)+len(t.parkedReads)+len(t.onePhase)+t.batch.Len() > 0 {
		return nil, false
	}
	idle = !isJoint(t.descriptor) && t.hasQuorum()
	t.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		switch node := t.nodes[id]; {
		case id == t.replica:
		case p.Match == t.last && p.State == tracker.StateReplicate:
			whole = append(whole, id)
		case node == 0 || !t.down(node):
			idle = false
		}
	})
	return whole, idle
}

// mayRest reports whether the leader's heartbeat finds this follower with everything.
func (t *Tablet) mayRest(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeat && !t.elected && m.GetTerm() == t.term && m.GetFrom() == t.leader && m.GetCommit() == t.last
}

// restful reports whether the message leaves a sleeping replica asleep: the question of a
// resting leader's read to a follower that has everything, and any answer to a heartbeat.
func (t *Tablet) restful(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeatResp || len(m.GetContext()) > 0 && t.mayRest(m)
}

// onNodeDown: the node is believed dead. If it led, the first of the other voters asks
// for votes at once, the rest when that has come to nothing. A leader at rest that is
// left without a quorum wakes: it is to find out and to lead no more.
func (t *Tablet) onNodeDown(m *nodeDown) {
	if t.failed == nil && t.elected && !t.hasQuorum() {
		t.wake()
	}
	if t.failed != nil || t.elected || t.leader == 0 || t.nodeOfLeader() != m.node {
		return
	}
	t.wake()
	if err := t.node.ForgetLeader(); err != nil {
		t.cfg.Logger.Warn("leader not forgotten", "tablet", t.id, "error", err)
	}
	first := t.replica
	for _, r := range t.descriptor.Replicas {
		if !r.Learner && r.ReplicaId < first && !t.down(r.NodeId) {
			first = r.ReplicaId
		}
	}
	if first == t.replica {
		t.campaign()
	}
	t.ready()
}

// onNodeUp: the node is believed alive again. A leader brings its replica there up to date.
func (t *Tablet) onNodeUp(m *nodeUp) {
	if !t.elected {
		return
	}
	for id, node := range t.nodes {
		if node == m.node && id != t.replica {
			t.wake()
			return
		}
	}
}
