package group

import (
	"maps"

	"go.etcd.io/raft/v3/raftpb"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// members is the group's membership as of the last entry handed out for applying: the descriptor
// contains the replicas' nodes, the configuration their votes. ApplyConfChange sets both;
// Reconfigure, after a split or a step of a merge, only the descriptor.
type members struct {
	descriptor *pb.TabletDescriptor
	conf       *raftpb.ConfState
	nodes      map[uint64]uint64 // by replica
	single     bool              // this replica is the only one that can be elected
	solo       bool              // there is no other replica at all
}

func newMembers(replica uint64, d *pb.TabletDescriptor, conf *raftpb.ConfState) members {
	m := members{descriptor: d, conf: conf, nodes: make(map[uint64]uint64, len(d.GetReplicas()))}
	for _, r := range d.GetReplicas() {
		m.nodes[r.ReplicaId] = r.NodeId
	}
	m.single = len(conf.Voters) == 1 && conf.Voters[0] == replica && len(conf.VotersOutgoing) == 0
	m.solo = m.single && len(conf.Learners) == 0
	return m
}

// Reconfigure sets the descriptor, and with it where the replicas are. The configuration
// stays: only ApplyConfChange changes that.
func (g *Group) Reconfigure(d *pb.TabletDescriptor) {
	g.members = newMembers(g.cfg.Replica, d, g.conf)
	g.lease.reconfigure(&g.members)
}

// ApplyConfChange puts an applied change of the replicas into force. It returns the new
// configuration, to be written together with the descriptor.
func (g *Group) ApplyConfChange(c *raftpb.ConfChangeV2, d *pb.TabletDescriptor) *raftpb.ConfState {
	g.members = newMembers(g.cfg.Replica, d, g.raft.ApplyConfChange(c))
	g.lease.reconfigure(&g.members)
	maps.DeleteFunc(g.stalePeers, func(id uint64, _ bool) bool { return g.nodes[id] == 0 })
	return g.conf
}

// Single reports whether this replica is the only one that can be elected.
func (g *Group) Single() bool { return g.single }

// hasQuorum reports whether enough voters for a decision are on nodes that are not
// believed dead, and not stale.
func (g *Group) hasQuorum() bool {
	for _, voters := range [][]uint64{g.conf.GetVoters(), g.conf.GetVotersOutgoing()} {
		alive := 0
		for _, id := range voters {
			if id == g.cfg.Replica || !g.cfg.Host.Down(g.nodes[id]) && !g.stalePeers[id] {
				alive++
			}
		}
		if len(voters) > 0 && alive <= len(voters)/2 {
			return false
		}
	}
	return true
}

// ConfState returns the configuration that a descriptor describes. While a change of voters is
// under way it has two sets of them.
func ConfState(d *pb.TabletDescriptor) *raftpb.ConfState {
	joint := IsJoint(d)
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

// IsJoint reports whether a change of voters is under way.
func IsJoint(d *pb.TabletDescriptor) bool {
	for _, r := range d.GetReplicas() {
		if r.Incoming || r.Outgoing {
			return true
		}
	}
	return false
}

// Voters returns the replicas that vote once the change under way is complete.
func Voters(d *pb.TabletDescriptor) (out []*pb.Replica) {
	for _, r := range d.GetReplicas() {
		if !r.Learner && !r.Outgoing {
			out = append(out, r)
		}
	}
	return out
}

// Replica returns the descriptor's replica with the id, or nil.
func Replica(d *pb.TabletDescriptor, id uint64) *pb.Replica {
	for _, r := range d.GetReplicas() {
		if r.ReplicaId == id {
			return r
		}
	}
	return nil
}

// WasRemoved reports whether the replica was removed: its id has been assigned before, and the
// descriptor does not list it.
func WasRemoved(d *pb.TabletDescriptor, id uint64) bool {
	return id < d.GetNextReplicaId() && Replica(d, id) == nil
}
