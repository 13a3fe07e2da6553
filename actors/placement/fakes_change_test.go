package placement

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Send implements Cluster.
func (w *world) Send(_ context.Context, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	f := w.tablets[tablet-1]
	if req.GetStatus() != nil {
		return &pb.TabletResponse{
			Result: &pb.TabletResponse_Status{
				Status: &pb.StatusResponse{Tablet: proto.CloneOf(f.d)},
			},
		}, done()
	}
	if req.Epoch != f.d.Epoch {
		return nil, fmt.Errorf("%w: epoch %d, not %d", errRefused, f.d.Epoch, req.Epoch)
	}
	if op := req.GetTransferLeader(); op != nil {
		if err := w.transfer(f, op.NodeId); err != nil {
			return nil, err
		}
		return &pb.TabletResponse{}, done()
	}
	if err := w.change(f, req.GetChangeReplicas().Changes); err != nil {
		return nil, err
	}
	return &pb.TabletResponse{}, done()
}

func (w *world) transfer(f *fakeTablet, to uint64) error {
	w.sent = append(w.sent, fmt.Sprintf("%d lead %d", f.d.TabletId, to))
	voters, _ := f.on()
	if !slices.Contains(voters, to) || !w.alive[to] || f.leader == 0 {
		return fmt.Errorf("%w: node %d can't lead", errRefused, to)
	}
	if f.leader == to {
		w.t.Errorf("tablet %d: node %d leads, and is to lead", f.d.TabletId, to)
	}
	if f.d.TabletId == 1 && slices.Contains(w.ahead, to) {
		w.t.Errorf("node %d, whose clock is ahead, is to lead meta", to)
	}
	f.leader = to
	return nil
}

// change changes replicas as a tablet does and checks placement's obligations.
func (w *world) change(f *fakeTablet, list []*pb.ReplicaChange) error {
	if f.next != nil || f.leader == 0 {
		return fmt.Errorf("%w: no leader, or another change is under way", errRefused)
	}
	before := proto.CloneOf(f.d)
	after := &fakeTablet{d: proto.CloneOf(f.d), match: f.match, stale: f.stale}
	for _, c := range list {
		w.sent = append(w.sent, fmt.Sprintf("%d %v %d", f.d.TabletId, c.Kind, c.NodeId))
		r := wire.ReplicaOn(after.d, c.NodeId)
		switch c.Kind {
		case pb.ReplicaChange_KIND_ADD_LEARNER:
			if r != nil {
				return fmt.Errorf("%w: two replicas on node %d", errRefused, c.NodeId)
			}
			after.grow(c.NodeId, true)
			continue
		case pb.ReplicaChange_KIND_REMOVE:
			if r == nil || !r.Learner {
				return fmt.Errorf("%w: no learner on node %d", errRefused, c.NodeId)
			}
			after.d.Replicas = slices.DeleteFunc(after.d.Replicas, func(o *pb.Replica) bool {
				return o == r
			})
			delete(f.match, c.NodeId)
			continue
		}
		if promote := c.Kind == pb.ReplicaChange_KIND_PROMOTE; r == nil || r.Learner != promote {
			return fmt.Errorf("%w: %v on node %d", errRefused, c.Kind, c.NodeId)
		}
		r.Learner = !r.Learner
	}
	if err := w.check(f, after); err != nil {
		return err
	}
	after.d.Epoch++
	f.d = after.d
	if w.linger > 0 && len(list) > 1 {
		w.stayJoint(f, before)
	}
	return nil
}

// stayJoint keeps the joint configuration for some statuses.
func (w *world) stayJoint(f *fakeTablet, before *pb.TabletDescriptor) {
	f.next, f.joint = f.d, w.linger
	f.d = proto.CloneOf(f.d)
	f.next.Epoch++
	for _, r := range f.d.Replicas {
		old := wire.ReplicaOn(before, r.NodeId)
		switch {
		case old == nil || old.Learner == r.Learner:
		case old.Learner:
			r.Incoming = true
		default:
			r.Learner, r.Outgoing = false, true
		}
	}
}

// check checks the safety property: no needed replica is removed.
func (w *world) check(f, after *fakeTablet) error {
	w.t.Helper()
	was, _ := f.on()
	voters, _ := after.on()
	live := func(nodes []uint64) (n int) {
		for _, v := range nodes {
			if w.votes(f, v) {
				n++
			}
		}
		return n
	}
	if live(was) <= len(was)/2 {
		return fmt.Errorf("%w: no quorum", errRefused)
	}
	if live(voters) <= len(voters)/2 {
		w.t.Errorf("QUORUM: tablet %d goes from voters %v to %v, of which %d live", f.d.TabletId,
			was, voters, live(voters))
	}
	useless := 0
	for _, v := range without(was, voters...) {
		if f.stale[wire.ReplicaOn(f.d, v).ReplicaId] {
			useless++
		}
	}
	if len(voters)+useless < min(w.target, oddFloor(len(was))) {
		w.t.Errorf("MOVE-UNFENCED: tablet %d goes from voters %v to %v, and ought to have %d",
			f.d.TabletId, was, voters, w.target)
	}
	for _, v := range voters {
		if !slices.Contains(was, v) && f.match[v]+maxLag < lastIndex {
			w.t.Errorf("EARLY-VOTER: tablet %d: node %d is to vote, and has %d of %d entries",
				f.d.TabletId, v, f.match[v], lastIndex)
		}
	}
	if !slices.Contains(voters, f.leader) {
		w.t.Errorf("tablet %d: its leader, on node %d, is to be no voter of %v", f.d.TabletId,
			f.leader, voters)
	}
	return nil
}
