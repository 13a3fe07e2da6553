package placement

import (
	"cmp"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file has the input of a plan. A State is built by gather for one turn and not
// changed afterwards.

// State is the input of a plan. Make does not change it.
type State struct {
	Replicas int // the configured number of replicas of each tablet
	Nodes    []Node
	Tablets  []Tablet // meta first
	Orders   []*pb.MoveTabletRequest
}

// Node is a node of the cluster.
type Node struct {
	ID    uint64
	Zone  string
	State pb.NodeState
	Alive bool // heard of lately, by gossip or by a tablet's leader
	Ahead bool // its clock is too far ahead of the others' for it to lead meta
	Gone  bool // absent for so long that its replicas are replaced
	Old   bool // absent for so long that its record may be removed
	Full  bool // short of disk space or another resource for files: it refuses writes
}

// mayHold reports whether replicas may stay on the node. A short absence changes nothing.
func (n *Node) mayHold() bool {
	return n != nil && n.State == pb.NodeState_NODE_STATE_ACTIVE && !n.Gone
}

// accepts reports whether the node may get a new replica now.
func (n *Node) accepts() bool { return n.mayHold() && n.Alive && !n.Full }

// Tablet is a tablet as its leader describes it, or else as the tablet map does.
type Tablet struct {
	D       *pb.TabletDescriptor
	Status  *pb.StatusResponse // the leader's status; nil if the leader does not answer
	Load    float64            // operations per second, smoothed
	Resting bool               // changed too recently to be balanced again
	Meta    bool               // it is the meta tablet

	LeaderResting bool // the leader was moved too recently to be balanced again
}

// leader returns the node that leads, or 0 if it is not known.
func (t *Tablet) leader() uint64 { return t.Status.GetNodeId() }

func (t *Tablet) progress(node uint64) *pb.ReplicaProgress {
	for _, p := range t.Status.GetReplicas() {
		if p.GetReplica().GetNodeId() == node {
			return p
		}
	}
	return nil
}

// maxLag is the number of log entries that a caught-up replica may lack. It is not zero because
// writes continue.
const maxLag = 256

// caughtUp reports whether the replica on the node lacks at most maxLag entries of the log, few
// enough for it to vote.
func (t *Tablet) caughtUp(node uint64) bool {
	if node == t.leader() {
		return true
	}
	p := t.progress(node)
	return p.GetActive() && !p.GetSnapshot() && p.GetMatch()+maxLag >= t.Status.GetLastIndex()
}

// shape is the nodes of a tablet's replicas by their role, oldest replica first. Replica
// ids only grow, so they give the order of creation.
type shape struct {
	voters   []uint64
	learners []uint64
	fresh    []uint64 // learners newer than every voter; older ones were voters, or moves left them
	joint    bool     // a joint change is under way, which the tablet completes by itself
}

func (t *Tablet) shape() shape {
	var s shape
	byAge := slices.SortedFunc(slices.Values(t.D.GetReplicas()), func(a, b *pb.Replica) int {
		return cmp.Compare(a.ReplicaId, b.ReplicaId)
	})
	for _, r := range byAge {
		s.joint = s.joint || r.Incoming || r.Outgoing
		if r.Learner {
			s.learners, s.fresh = append(s.learners, r.NodeId), append(s.fresh, r.NodeId)
		} else {
			s.voters, s.fresh = append(s.voters, r.NodeId), nil
		}
	}
	return s
}

// without returns the elements of a that are not in b, in a's order.
func without(a []uint64, b ...uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(a), func(n uint64) bool { return slices.Contains(b, n) })
}

// both returns the elements of a that are also in b, in a's order.
func both(a, b []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(a), func(n uint64) bool { return !slices.Contains(b, n) })
}

// oddFloor returns the largest odd number up to n, at least 1.
func oddFloor(n int) int { return max(1, n-1+n%2) }
