package tablet

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file has the requests for a transfer of the leadership. The group carries it out
// and says when it has ended; the call that asked for it waits meanwhile, also beyond the
// end of this replica's leadership. One is under way at a time, as the tablet's exclusive.

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
	r, err := port.Ask(ctx, &pb.TabletRequest{
		Op: &pb.TabletRequest_TransferLeader{
			TransferLeader: &pb.TransferLeaderRequest{NodeId: node},
		},
	}, true)
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
	if r.GetNodeId() == e.cfg.NodeID && r.GetNodeId() != 0 {
		call.Reply(transferResponse(r.GetNodeId()))
		return
	}
	target := e.group.TransferTarget(r.GetNodeId())
	switch {
	case e.group.Transferring():
		call.Reply(failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d is being handed over; try again",
			e.id))
	case target == 0:
		call.Reply(failure(pb.Error_CODE_UNAVAILABLE,
			"tablet %d has no other voter that could lead, on node %d", e.id, r.GetNodeId()))
	default:
		e.exclude(&exclusive{call: call, target: target})
	}
}

func transferResponse(node uint64) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_TransferLeader{
			TransferLeader: &pb.TransferLeaderResponse{LeaderNode: node},
		},
	}
}

// transferFailed ends a transfer that has come to nothing.
func (t *Tablet) transferFailed() {
	t.dropTransfer()
	if e := t.exclusive; e != nil && e.target != 0 {
		t.endExclusive()
	}
}

// dropTransfer answers who waits for a transfer whose end this replica will not see.
func (t *Tablet) dropTransfer() {
	if t.transferCall != nil {
		t.transferCall.Reply(failure(pb.Error_CODE_UNAVAILABLE,
			"tablet %d could not be handed over", t.id))
		t.transferCall = nil
	}
}
