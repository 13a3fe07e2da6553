package group

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the rules of a change of the replicas (design section 5). The descriptor
// after a change is a function of the one before and of the steps asked for; raft's change
// is the difference between the two. The state of a change under way is in a Change, which
// the tablet keeps from the request to the last entry.

const (
	// maxChanges bounds the steps of one change.
	maxChanges = 16
	// maxBehind is the number of entries that a learner may lack when it becomes a voter: so few
	// that they take no noticeable time.
	maxBehind = 256
	// maxHandovers is the number of attempts of a leader that loses its vote to transfer the
	// leadership before it leaves the joint configuration itself.
	maxHandovers = 3
)

// FirstReplica is the id of the first replica of a new tablet, and of each tablet's only replica in
// stores of builds before replication.
const FirstReplica = 1

// ErrBadChange is wrapped by the errors of changes that cannot be made to the given descriptor.
var ErrBadChange = errors.New("tablet: change of replicas refused")

// errChanged reports that the replicas have changed since the change was requested, so that its
// steps no longer apply.
var errChanged = errors.New("its replicas have changed; try again")

// Change is a change of the replicas under way. One of a single replica is one entry. One of
// several that changes voters goes through a joint configuration, in which both the old and the
// new voters decide, and which is left as soon as it is applied; one that changes only learners
// is an entry for each. The zero value leaves a joint configuration that the leader has found.
type Change struct {
	steps     []*pb.ReplicaChange // steps of the next entry; empty: leave the joint configuration
	later     []*pb.ReplicaChange // steps of later entries
	handovers int                 // transfers begun by handOverFirst so far
}

// NewChange returns a change with the steps.
func NewChange(steps []*pb.ReplicaChange) *Change { return &Change{steps: steps} }

// Leaving reports whether nothing but leaving the joint configuration is left to do.
func (c *Change) Leaving() bool { return len(c.steps) == 0 }

// Last reports whether the entry that makes the descriptor completes the change.
func (c *Change) Last(d *pb.TabletDescriptor) bool { return !IsJoint(d) && len(c.later) == 0 }

// Applied notes that the descriptor is in force, and reports whether the change is
// complete.
func (c *Change) Applied(d *pb.TabletDescriptor) (complete bool) {
	if IsJoint(d) {
		c.steps = nil
		return false
	}
	c.steps, c.later = c.later, nil
	return len(c.steps) == 0
}

// oneByOne reduces several steps that change no voter to the first that is not done yet; the
// others follow, each in a separate entry. Raft treats several in one entry as a joint
// configuration, which the descriptor would not show.
func (c *Change) oneByOne(d *pb.TabletDescriptor) {
	for _, s := range c.steps {
		if s.Kind == pb.ReplicaChange_KIND_PROMOTE || s.Kind == pb.ReplicaChange_KIND_DEMOTE {
			return
		}
	}
	for len(c.steps) > 1 {
		_, done, err := NextDescriptor(d, c.steps[:1])
		if err != nil || !done {
			c.steps, c.later = c.steps[:1], c.steps[1:]
			return
		}
		c.steps = c.steps[1:]
	}
}

// Next returns the descriptor after the next entry of the change. It is recomputed each time,
// because the replicas may have changed, or a learner fallen behind, while other entries drained:
// an error, which is for the requester, ends the change. A nil descriptor without an error means
// not yet: try again after the next tick.
func (g *Group) Next(c *Change) (*pb.TabletDescriptor, error) {
	c.oneByOne(g.descriptor)
	next := leaveJoint(g.descriptor)
	if !c.Leaving() {
		var err error
		if next, _, err = NextDescriptor(g.descriptor, c.steps); err != nil {
			return nil, errChanged
		}
		if err := g.Lagging(c.steps); err != nil {
			return nil, err
		}
	} else if g.handOverFirst(c) {
		return nil, nil
	}
	if g.raft.BasicStatus().Applied < g.visible {
		return nil, nil // raft would refuse: it does not know yet that all is applied
	}
	return next, nil
}

// ProposeChange proposes the step to the next descriptor; data is the entry's command.
func (g *Group) ProposeChange(next *pb.TabletDescriptor, data []byte) error {
	c := ConfChange(g.descriptor, next)
	c.Context = data
	return g.raft.ProposeConfChange(c)
}

// Lagging returns why a learner may not become a voter yet, or nil if all learners promoted by the
// steps may. A voter that is far behind, or absent, could leave the group without a quorum
// permanently.
func (g *Group) Lagging(steps []*pb.ReplicaChange) (err error) {
	promoted := map[uint64]bool{}
	for _, s := range steps {
		r := wire.ReplicaOn(g.descriptor, s.GetNodeId())
		if s.GetKind() == pb.ReplicaChange_KIND_PROMOTE && r.GetLearner() {
			promoted[r.GetReplicaId()] = true
		}
	}
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		caughtUp := g.active(id) && p.State == tracker.StateReplicate && p.Match+maxBehind >= g.last
		if promoted[id] && !caughtUp {
			err = fmt.Errorf(
				"replica %d on node %d is silent or behind: it has %d of %d entries; try again", id,
				g.nodes[id], p.Match, g.last)
		}
	})
	return err
}

// NextDescriptor returns the descriptor after the first entry of a change; done reports that there
// is nothing to do. Its errors wrap ErrBadChange.
func NextDescriptor(d *pb.TabletDescriptor,
	steps []*pb.ReplicaChange) (next *pb.TabletDescriptor, done bool, err error) {
	if len(steps) == 0 || len(steps) > maxChanges {
		return nil, false, fmt.Errorf("%w: %d steps; 1 to %d are allowed", ErrBadChange,
			len(steps), maxChanges)
	}
	next, done = proto.CloneOf(d), true
	next.Epoch++
	seen := map[uint64]bool{}
	for _, s := range steps {
		if s.GetNodeId() == 0 || seen[s.NodeId] {
			return nil, false, fmt.Errorf("%w: node %d is invalid or occurs twice", ErrBadChange,
				s.GetNodeId())
		}
		seen[s.NodeId] = true
		changed, err := applyStep(next, s, len(steps) > 1)
		if err != nil {
			return nil, false, err
		}
		done = done && !changed
	}
	return next, done, nil
}

// applyStep applies one step of a change to the descriptor. changed is false if it was applied
// before.
func applyStep(d *pb.TabletDescriptor, s *pb.ReplicaChange, joint bool) (changed bool, err error) {
	r := wire.ReplicaOn(d, s.NodeId)
	if r == nil && s.Kind != pb.ReplicaChange_KIND_ADD_LEARNER &&
		s.Kind != pb.ReplicaChange_KIND_REMOVE {
		return false, fmt.Errorf("%w: tablet %d has no replica on node %d", ErrBadChange,
			d.TabletId, s.NodeId)
	}
	switch s.Kind {
	case pb.ReplicaChange_KIND_ADD_LEARNER:
		if r != nil {
			if !r.Learner {
				return false, fmt.Errorf("%w: the replica on node %d is a voter", ErrBadChange,
					s.NodeId)
			}
			return false, nil
		}
		id := nextReplicaID(d)
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: id, NodeId: s.NodeId, Learner: true})
		d.NextReplicaId = id + 1
	case pb.ReplicaChange_KIND_PROMOTE:
		if !r.Learner {
			return false, nil
		}
		r.Learner, r.Incoming = false, joint
	case pb.ReplicaChange_KIND_DEMOTE:
		if r.Learner {
			return false, nil
		}
		r.Learner, r.Outgoing = !joint, joint
	case pb.ReplicaChange_KIND_REMOVE:
		if r == nil {
			return false, nil
		}
		if !r.Learner {
			return false, fmt.Errorf(
				"%w: the replica on node %d is a voter: it must be demoted first", ErrBadChange, s.NodeId)
		}
		d.Replicas = slices.DeleteFunc(d.Replicas, func(other *pb.Replica) bool {
			return other == r
		})
	default:
		return false, fmt.Errorf("%w: unknown kind %v", ErrBadChange, s.Kind)
	}
	return true, nil
}

// nextReplicaID returns an id that no replica of the tablet ever had.
func nextReplicaID(d *pb.TabletDescriptor) uint64 {
	id := max(d.NextReplicaId, FirstReplica)
	for _, r := range d.Replicas {
		id = max(id, r.ReplicaId+1)
	}
	return id
}

// leaveJoint returns the descriptor after the joint configuration has been left.
func leaveJoint(d *pb.TabletDescriptor) *pb.TabletDescriptor {
	next := proto.CloneOf(d)
	next.Epoch++
	for _, r := range next.Replicas {
		if r.Outgoing {
			r.Learner = true
		}
		r.Incoming, r.Outgoing = false, false
	}
	return next
}

// ConfChange returns raft's configuration change for the step from one descriptor to the next.
func ConfChange(before, after *pb.TabletDescriptor) *raftpb.ConfChangeV2 {
	c := &raftpb.ConfChangeV2{}
	if IsJoint(before) {
		return c // empty: leave
	}
	single := func(id uint64, typ raftpb.ConfChangeType) {
		c.Changes = append(c.Changes, &raftpb.ConfChangeSingle{Type: typ.Enum(), NodeId: &id})
	}
	for _, r := range after.Replicas {
		was := Replica(before, r.ReplicaId)
		switch {
		case (was == nil && r.Learner) || r.Outgoing || (was != nil && !was.Learner && r.Learner):
			single(r.ReplicaId, raftpb.ConfChangeAddLearnerNode)
		case was == nil || was.Learner != r.Learner:
			single(r.ReplicaId, raftpb.ConfChangeAddNode)
		}
	}
	for _, r := range before.Replicas {
		if Replica(after, r.ReplicaId) == nil {
			single(r.ReplicaId, raftpb.ConfChangeRemoveNode)
		}
	}
	if IsJoint(after) || len(c.Changes) > 1 {
		c.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	}
	return c
}
