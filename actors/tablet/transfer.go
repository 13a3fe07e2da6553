package tablet

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// transferring is a leader's handing over to another voter. Raft gives it up after an
// election timeout.
type transferring struct {
	call  *Call // nil: nobody waits
	ticks int   // since it began
}

// transferTicks bounds how long it is waited for who leads after a handing over.
const transferTicks = 3 * electionTicks

// ErrNoTransfer is wrapped by errors of TransferAway: the tablet is still led by who led
// it, or by nobody.
var ErrNoTransfer = errors.New("tablet: leadership was not handed over")

// TransferAway has the tablet's leader, if it is the replica at port, hand over to
// whichever voter has most of its log. It returns the node that leads after it.
func TransferAway(ctx context.Context, port *Port) (leaderNode uint64, err error) {
	return TransferTo(ctx, port, 0)
}

// TransferTo is TransferAway to the voter on the node; 0: to whichever.
func TransferTo(ctx context.Context, port *Port, node uint64) (leaderNode uint64, err error) {
	r, err := port.Ask(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_TransferLeader{TransferLeader: &pb.TransferLeaderRequest{NodeId: node}}}, true)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoTransfer, err)
	}
	if e := r.GetError(); e != nil {
		if e.Code == pb.Error_CODE_NOT_LEADER {
			return e.LeaderNode, nil
		}
		return 0, fmt.Errorf("%w: %s", ErrNoTransfer, e.Message)
	}
	return r.GetTransferLeader().GetLeaderNode(), nil
}

// beginTransfer takes a handing over on, or refuses it. Node 0 is whichever.
func (e *evaluation) beginTransfer(call *Call, r *pb.TransferLeaderRequest) {
	if r.GetNodeId() == e.nodes[e.replica] && r.GetNodeId() != 0 {
		call.Reply(transferResponse(r.GetNodeId()))
		return
	}
	heir := e.heir(r.GetNodeId())
	switch {
	case e.transfer != nil:
		call.Reply(failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d is being handed over; try again", e.id))
	case heir == 0:
		call.Reply(failure(pb.Error_CODE_UNAVAILABLE, "tablet %d has no other voter that could lead, on node %d", e.id, r.GetNodeId()))
	default:
		e.exclude(&exclusive{call: call, heir: heir})
	}
}

func transferResponse(node uint64) *pb.TabletResponse {
	return &pb.TabletResponse{Result: &pb.TabletResponse_TransferLeader{TransferLeader: &pb.TransferLeaderResponse{LeaderNode: node}}}
}

// heir is the voter that has most of the log, among those that are heard of, on the node
// if it is not 0; 0: there is none. Who votes in the new configuration only, or in the
// old one only, is no less a voter.
func (t *Tablet) heir(node uint64) (heir uint64) {
	best := uint64(0)
	t.node.WithProgress(func(id uint64, typ raft.ProgressType, p tracker.Progress) {
		r := replicaOf(t.descriptor, id)
		if id == t.replica || r.GetLearner() || r.GetOutgoing() || typ == raft.ProgressTypeLearner || (node != 0 && r.GetNodeId() != node) ||
			!t.active(id) || p.State != tracker.StateReplicate {
			return
		}
		if heir == 0 || p.Match > best || (p.Match == best && id < heir) {
			heir, best = id, p.Match
		}
	})
	return heir
}

// handOver asks raft to: nothing is in flight, so nobody's outcome becomes unknown by it.
func (t *Tablet) handOver(x *exclusive) {
	x.proposed = true
	t.transfer = &transferring{call: x.call}
	t.node.TransferLeader(x.heir)
	t.wake()
}

// handOverFirst has another replica leave the joint configuration if this one does not
// vote in the new one: then there is no moment without a leader. After some tries it does
// so itself.
func (t *Tablet) handOverFirst(x *exclusive) bool {
	if !replicaOf(t.descriptor, t.replica).GetOutgoing() || x.change.tries >= maxHandOvers {
		return false
	}
	if t.transfer != nil {
		return true
	}
	heir := t.heir(0)
	if heir == 0 {
		return false
	}
	x.change.tries++
	t.transfer = &transferring{}
	t.node.TransferLeader(heir)
	return true
}

// transferred ends a handing over, as soon as it is known who leads: another, if raft has
// not given it up.
func (t *Tablet) transferred() {
	if x := t.transfer; x != nil && t.leader != 0 && !t.elected {
		t.transfer = nil
		if x.call != nil {
			x.call.Reply(transferResponse(t.nodeOfLeader()))
		}
	}
}

// dropTransfer answers who waits for a handing over whose end this replica will not see.
func (t *Tablet) dropTransfer() {
	if x := t.transfer; x != nil && x.call != nil {
		x.call.Reply(failure(pb.Error_CODE_UNAVAILABLE, "tablet %d could not be handed over", t.id))
	}
	t.transfer = nil
}

// transferTick gives a handing over up that raft has given up, or that has left nobody
// leading for too long.
func (t *Tablet) transferTick() {
	x := t.transfer
	if x == nil {
		return
	}
	x.ticks++
	if x.ticks <= transferTicks && (!t.elected || t.node.BasicStatus().LeadTransferee != 0) {
		return
	}
	t.dropTransfer()
	if e := t.exclusive; e != nil && e.heir != 0 {
		t.endExclusive()
	}
}
