package tablet

import (
	"go.etcd.io/raft/v3/raftpb"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// confOf is the configuration that a descriptor describes. While a change is under way
// there are two sets of voters.
func confOf(d *pb.TabletDescriptor) *raftpb.ConfState {
	joint := isJoint(d)
	c := &raftpb.ConfState{AutoLeave: new(bool)}
	for _, r := range d.GetReplicas() {
		switch {
		case r.Learner:
			c.Learners = append(c.Learners, r.ReplicaId)
		case r.Outgoing:
			c.LearnersNext = append(c.LearnersNext, r.ReplicaId)
		default:
			c.Voters = append(c.Voters, r.ReplicaId)
		}
		if joint && !r.Learner && !r.Incoming {
			c.VotersOutgoing = append(c.VotersOutgoing, r.ReplicaId)
		}
	}
	return c
}

// isJoint reports whether a change of voters is under way.
func isJoint(d *pb.TabletDescriptor) bool {
	for _, r := range d.GetReplicas() {
		if r.Incoming || r.Outgoing {
			return true
		}
	}
	return false
}

// replicaOf is the descriptor's replica with the id; nil if there is none.
func replicaOf(d *pb.TabletDescriptor, id uint64) *pb.Replica {
	for _, r := range d.GetReplicas() {
		if r.ReplicaId == id {
			return r
		}
	}
	return nil
}

// withoutReplica reports whether the replica was removed: it is not there, and its id has
// been given away.
func withoutReplica(d *pb.TabletDescriptor, id uint64) bool {
	return id < d.GetNextReplicaId() && replicaOf(d, id) == nil
}

// members takes note of who belongs to the group, after every change of the descriptor or
// the configuration.
func (t *Tablet) members() {
	t.nodes = make(map[uint64]uint64, len(t.descriptor.GetReplicas()))
	for _, r := range t.descriptor.GetReplicas() {
		t.nodes[r.ReplicaId] = r.NodeId
	}
	c := t.conf
	t.single = len(c.Voters) == 1 && c.Voters[0] == t.replica && len(c.VotersOutgoing) == 0
	t.solo = t.single && len(c.Learners) == 0
}

// nodeOfLeader is the node of the replica that leads, as far as is known; else 0.
func (t *Tablet) nodeOfLeader() uint64 { return t.nodes[t.leader] }

// leaderless is for how long this replica has known of no leader, in milliseconds of ticks and at
// least one; 0: it knows one. A replica without a leader does not rest, so its clock goes on.
func (t *Tablet) leaderless() int64 {
	if t.leader != 0 || t.cfg.Ticker == nil {
		return 0
	}
	return max(1, int64(t.clock-t.lost)*t.cfg.Ticker.interval.Milliseconds())
}

// hasQuorum reports whether enough voters for a decision are on nodes that are not believed dead.
func (t *Tablet) hasQuorum() bool {
	for _, voters := range [][]uint64{t.conf.GetVoters(), t.conf.GetVotersOutgoing()} {
		alive := 0
		for _, id := range voters {
			if id == t.replica || !t.down(t.nodes[id]) {
				alive++
			}
		}
		if len(voters) > 0 && alive <= len(voters)/2 {
			return false
		}
	}
	return true
}

// notLeader says that this replica does not lead, and who does.
func (t *Tablet) notLeader(format string, args ...any) *pb.TabletResponse {
	r := failure(pb.Error_CODE_NOT_LEADER, format, args...)
	r.Error.LeaderNode = t.nodeOfLeader()
	return r
}

// onLeader: another replica leads, or nobody is known to.
func (t *Tablet) onLeader() {
	if t.leader != 0 {
		t.lonely, t.hurried = 0, 0
	} else {
		t.lost = t.clock
	}
	t.host.Following(t.id, t.nodeOfLeader())
	t.transferred()
}

// remove ends this replica: it is not of its group any more. Its node destroys it.
func (t *Tablet) remove() {
	if t.removed {
		return
	}
	t.removed = true
	t.cfg.Logger.Info("replica removed from its tablet", "tablet", t.id, "replica", t.replica)
	t.stepDown(errRemoved)
	t.failed = errRemoved
	t.sleep()
	t.host.Removed(t.id)
}
