package placement

import (
	"cmp"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// State is all that a plan is made from. Make changes nothing in it.
type State struct {
	Replicas    int // the configured number of each tablet
	MaxChanging int // most tablets with a learner at once
	MaxIncoming int // most learners on one node that have not caught up
	Nodes       []Node
	Tablets     []Tablet // meta first
	Orders      []*pb.MoveTabletRequest
}

// Node is a node of the cluster.
type Node struct {
	ID    uint64
	Zone  string
	State pb.NodeState
	Alive bool // it has been heard of lately: by gossip, or by a tablet's leader
	Ahead bool // its clock is too far ahead of the others' for it to lead meta
	Gone  bool // it has been away for so long that its replicas are replaced
	Old   bool // it has been away for so long that it may be forgotten
	Full  bool // its disk has too little room: it refuses writes of what it leads
}

// mayHold: it counts as a place for replicas, also while it is away for a short time.
func (n *Node) mayHold() bool {
	return n != nil && n.State == pb.NodeState_NODE_STATE_ACTIVE && !n.Gone
}

// takes: it may get a replica now.
func (n *Node) takes() bool { return n.mayHold() && n.Alive && !n.Full }

// Tablet is a tablet as its leader says, or as the tablet map has it.
type Tablet struct {
	D       *pb.TabletDescriptor
	Status  *pb.StatusResponse // its leader's; nil: that does not answer
	Load    float64            // operations per second, smoothed
	Resting bool               // it was changed lately: not to be balanced again yet
	Meta    bool

	LeaderResting bool // its leader was moved lately, likewise
}

// leader is the node that leads; 0: not known.
func (t *Tablet) leader() uint64 { return t.Status.GetNodeId() }

func (t *Tablet) progress(node uint64) *pb.ReplicaProgress {
	for _, p := range t.Status.GetReplicas() {
		if p.GetReplica().GetNodeId() == node {
			return p
		}
	}
	return nil
}

// maxLag is how many entries a replica that has caught up may lack: writes go on meanwhile.
const maxLag = 256

// caughtUp: the replica on the node has what it takes to vote.
func (t *Tablet) caughtUp(node uint64) bool {
	p := t.progress(node)
	return node == t.leader() || p.GetActive() && !p.GetSnapshot() && p.GetMatch()+maxLag >= t.Status.GetLastIndex()
}

// shape is a tablet's replicas by their part, as nodes. Replica ids only grow, so they
// tell what came after what.
type shape struct {
	voters   []uint64 // the oldest replica first
	learners []uint64
	fresh    []uint64 // the learners that are newer than all voters; others have been voters, or are left over
	joint    bool     // a change is under way, which the tablet finishes by itself
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

// without is a minus b, in a's order.
func without(a []uint64, b ...uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(a), func(n uint64) bool { return slices.Contains(b, n) })
}

// both is what is in a and in b, in a's order.
func both(a, b []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(a), func(n uint64) bool { return !slices.Contains(b, n) })
}

// oddFloor is the largest odd number up to n; at least 1.
func oddFloor(n int) int { return max(1, n-1+n%2) }
