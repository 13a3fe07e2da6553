package tablet

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// change is a change of the tablet's replicas (design section 5). One of a single replica
// is one entry; one of several goes through a joint configuration, in which both the old
// and the new voters decide, and which the leader leaves as soon as it is applied. Each
// entry's context is the descriptor after it: descriptor, epoch and configuration change
// in one Txn.
type change struct {
	steps []*pb.ReplicaChange // empty: leave the joint configuration
	later []*pb.ReplicaChange // after them
	tries int                 // of handing over before leaving, where this leader is to vote no more
}

const (
	// maxChanges bounds the steps of one change.
	maxChanges = 16
	// maxBehind is how many entries a learner may lack that is to become a voter: they
	// take no time worth mentioning.
	maxBehind = 256
	// maxHandOvers is how often a leader that is to vote no more tries to have another
	// one lead before.
	maxHandOvers = 3
)

var (
	errBadChange = errors.New("tablet: change of replicas refused")
	errRemoved   = errors.New("tablet: this replica was removed")
)

// beginChange takes a change on, or refuses it.
func (e *evaluation) beginChange(call *Call, r *pb.ChangeReplicasRequest) {
	switch next, done, err := nextReplicas(e.descriptor, r.GetChanges()); {
	case call.Req.Epoch == 0:
		call.Reply(failure(pb.Error_CODE_INVALID, "a change of replicas needs the tablet's epoch"))
	case err != nil:
		call.Reply(failure(pb.Error_CODE_INVALID, "%v", err))
	case done:
		e.proposal.answer(call, changeResponse(e.descriptor))
	case isJoint(e.descriptor):
		call.Reply(failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d changes its replicas; try again", e.id))
	case len(voters(next)) == 0:
		call.Reply(failure(pb.Error_CODE_INVALID, "tablet %d would have no voter left", e.id))
	default:
		if lagging := e.lagging(r.GetChanges()); lagging != "" {
			call.Reply(failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d: %s", e.id, lagging))
			return
		}
		e.exclude(&exclusive{call: call, change: &change{steps: r.GetChanges()}})
	}
}

func changeResponse(d *pb.TabletDescriptor) *pb.TabletResponse {
	return &pb.TabletResponse{Result: &pb.TabletResponse_ChangeReplicas{ChangeReplicas: &pb.ChangeReplicasResponse{Tablet: d}}}
}

// lagging says why a learner may not become a voter yet; empty: all that are to may. A
// voter that is far behind, or away, could keep the group from ever deciding anything
// again.
func (t *Tablet) lagging(steps []*pb.ReplicaChange) (why string) {
	promoted := map[uint64]bool{}
	for _, s := range steps {
		if r := wire.ReplicaOn(t.descriptor, s.GetNodeId()); s.GetKind() == pb.ReplicaChange_KIND_PROMOTE && r.GetLearner() {
			promoted[r.GetReplicaId()] = true
		}
	}
	t.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if promoted[id] && (!t.active(id) || p.State != tracker.StateReplicate || p.Match+maxBehind < t.last) {
			why = fmt.Sprintf("replica %d on node %d has not caught up: it has %d of %d; try again", id, t.nodes[id], p.Match, t.last)
		}
	})
	return why
}

// voters are the replicas that vote once the change is complete.
func voters(d *pb.TabletDescriptor) (out []*pb.Replica) {
	for _, r := range d.GetReplicas() {
		if !r.Learner && !r.Outgoing {
			out = append(out, r)
		}
	}
	return out
}

// nextReplicas is the descriptor after the first entry of a change. done: there is nothing to do.
func nextReplicas(d *pb.TabletDescriptor, steps []*pb.ReplicaChange) (next *pb.TabletDescriptor, done bool, err error) {
	if len(steps) == 0 || len(steps) > maxChanges {
		return nil, false, fmt.Errorf("%w: %d steps; 1 to %d are possible", errBadChange, len(steps), maxChanges)
	}
	next, done = proto.CloneOf(d), true
	next.Epoch++
	seen := map[uint64]bool{}
	for _, s := range steps {
		if s.GetNodeId() == 0 || seen[s.NodeId] {
			return nil, false, fmt.Errorf("%w: node %d in it, or twice", errBadChange, s.GetNodeId())
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

// applyStep makes one step of a change in the descriptor. changed is false if it was made before.
func applyStep(d *pb.TabletDescriptor, s *pb.ReplicaChange, joint bool) (changed bool, err error) {
	r := wire.ReplicaOn(d, s.NodeId)
	if r == nil && s.Kind != pb.ReplicaChange_KIND_ADD_LEARNER && s.Kind != pb.ReplicaChange_KIND_REMOVE {
		return false, fmt.Errorf("%w: tablet %d has no replica on node %d", errBadChange, d.TabletId, s.NodeId)
	}
	switch s.Kind {
	case pb.ReplicaChange_KIND_ADD_LEARNER:
		if r != nil {
			if !r.Learner {
				return false, fmt.Errorf("%w: the replica on node %d is a voter", errBadChange, s.NodeId)
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
			return false, fmt.Errorf("%w: the replica on node %d is a voter: it must be demoted first", errBadChange, s.NodeId)
		}
		d.Replicas = without(d.Replicas, r.ReplicaId)
	default:
		return false, fmt.Errorf("%w: unknown kind %v", errBadChange, s.Kind)
	}
	return true, nil
}

// nextReplicaID is an id that no replica of the tablet ever had.
func nextReplicaID(d *pb.TabletDescriptor) uint64 {
	id := max(d.NextReplicaId, firstReplica)
	for _, r := range d.Replicas {
		id = max(id, r.ReplicaId+1)
	}
	return id
}

func without(rs []*pb.Replica, id uint64) (out []*pb.Replica) {
	for _, r := range rs {
		if r.ReplicaId != id {
			out = append(out, r)
		}
	}
	return out
}

// afterJoint is the descriptor after the joint configuration has been left.
func afterJoint(d *pb.TabletDescriptor) *pb.TabletDescriptor {
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

// confChange is what raft is to make of the step from one descriptor to the next.
func confChange(before, after *pb.TabletDescriptor) *raftpb.ConfChangeV2 {
	c := &raftpb.ConfChangeV2{}
	if isJoint(before) {
		return c // empty: leave
	}
	single := func(id uint64, typ raftpb.ConfChangeType) {
		c.Changes = append(c.Changes, &raftpb.ConfChangeSingle{Type: typ.Enum(), NodeId: &id})
	}
	for _, r := range after.Replicas {
		was := replicaOf(before, r.ReplicaId)
		switch {
		case (was == nil && r.Learner) || r.Outgoing || (was != nil && !was.Learner && r.Learner):
			single(r.ReplicaId, raftpb.ConfChangeAddLearnerNode)
		case was == nil || was.Learner != r.Learner:
			single(r.ReplicaId, raftpb.ConfChangeAddNode)
		}
	}
	for _, r := range before.Replicas {
		if replicaOf(after, r.ReplicaId) == nil {
			single(r.ReplicaId, raftpb.ConfChangeRemoveNode)
		}
	}
	if isJoint(after) || len(c.Changes) > 1 {
		c.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	}
	return c
}

// proposeChange proposes the next entry of a change. It is evaluated anew: the drain may
// have taken a while.
func (t *Tablet) proposeChange(x *exclusive) {
	x.change.oneByOne(t.descriptor)
	next := afterJoint(t.descriptor)
	if leaving := len(x.change.steps) == 0; leaving && t.handOverFirst(x) {
		return
	} else if !leaving {
		var err error
		if next, _, err = nextReplicas(t.descriptor, x.change.steps); err != nil || t.lagging(x.change.steps) != "" {
			x.call.Reply(failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d: its replicas have changed meanwhile; try again", t.id))
			t.endExclusive()
			return
		}
	}
	if t.node.BasicStatus().Applied < t.visible {
		return // raft would refuse: it has not heard of all that is applied. It soon will
	}
	p := t.newProposal()
	p.command.Replicas = next
	p.conf = confChange(t.descriptor, next)
	if x.call != nil && !isJoint(next) && len(x.change.later) == 0 {
		p.answer(x.call, changeResponse(next))
	}
	x.proposed = true
	if !t.propose(p) {
		if x.call != nil { // of an entry that is not the last, the proposal has nobody to tell
			x.call.Reply(failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d could not propose a change of its replicas; try again", t.id))
		}
		x.proposed = false
		t.endExclusive()
	}
}

// applyConfChange applies an entry that changes the replicas. The configuration counts
// from here on; it is written with the descriptor in the Txn of the entry. One of another
// epoch changes nothing, on no replica.
func (t *Tablet) applyConfChange(a *applied, e *raftpb.Entry) error {
	c := &raftpb.ConfChangeV2{}
	command := t.match(a)
	if err := proto.Unmarshal(e.Data, c); err != nil || e.GetType() != raftpb.EntryConfChangeV2 {
		return fmt.Errorf("entry %d of tablet %d is no change of replicas: %w", a.index, t.id, err)
	}
	if command == nil {
		command = &wire.Command{}
		if err := proto.Unmarshal(c.Context, command); err != nil {
			return fmt.Errorf("entry %d of tablet %d cannot be read: %w", a.index, t.id, err)
		}
	}
	if command.Epoch != t.descriptor.Epoch || command.Replicas == nil {
		a.dropped = true
		return nil
	}
	if t.cfg.Alone != nil {
		t.cfg.Alone.said.Store(nil) // before anybody else may be elected
	}
	t.conf = t.node.ApplyConfChange(c)
	t.descriptor = command.Replicas
	t.stateChanged = true
	t.members()
	a.changed = t.descriptor
	return nil
}

// changeVisible: the replicas are others now. A leader goes on with the change; a replica
// that is not one any more ends.
func (t *Tablet) changeVisible(d *pb.TabletDescriptor) {
	t.host.Changed(d)
	if withoutReplica(d, t.replica) {
		t.remove()
		return
	}
	t.wake()
	if !t.elected {
		t.rouse()
	}
	x := t.exclusive
	if !t.leading || x == nil || x.change == nil {
		return
	}
	x.proposed = false
	if isJoint(d) {
		x.change.steps = nil
		t.tryExclusive()
		return
	}
	if x.change.steps, x.change.later = x.change.later, nil; len(x.change.steps) > 0 {
		t.tryExclusive()
		return
	}
	t.endExclusive()
}

// oneByOne leaves of several steps that change no voter the first that is not made yet;
// the others follow, each in an entry of its own. To raft, several in one entry are a
// joint configuration, which the descriptor would not show.
func (c *change) oneByOne(d *pb.TabletDescriptor) {
	for _, s := range c.steps {
		if s.Kind == pb.ReplicaChange_KIND_PROMOTE || s.Kind == pb.ReplicaChange_KIND_DEMOTE {
			return
		}
	}
	for len(c.steps) > 1 {
		_, done, err := nextReplicas(d, c.steps[:1])
		if err != nil || !done {
			c.steps, c.later = c.steps[:1], c.steps[1:]
			return
		}
		c.steps = c.steps[1:]
	}
}

// goOnChanging leaves a joint configuration that this leader has found, or that it could
// not leave yet.
func (t *Tablet) goOnChanging() {
	if !t.leading {
		return
	}
	if t.exclusive == nil && isJoint(t.descriptor) {
		t.exclude(&exclusive{change: &change{}})
	}
	t.tryExclusive()
}
