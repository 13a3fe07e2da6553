package tablet

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file handles requests for a transfer of the leadership. The group carries it out
// and says when it has ended. The call that asked for it waits meanwhile in the barrier, also
// beyond the end of this replica's leadership. One is under way at a time, as the tablet's
// exclusive. TransferAway and TransferTo run on their callers' goroutines, the
// rest in the tablet's turns.

// ErrNoTransfer is wrapped by the errors of TransferAway and TransferTo: the transfer has
// not taken place, as far as is known.
var ErrNoTransfer = errors.New("tablet: leadership was not handed over")

// TransferAway has the tablet's leader, if it is the replica at port, transfer the
// leadership to whichever voter has most of its log. It returns the node that leads after
// it.
func TransferAway(ctx context.Context, port *Port) (leaderNode uint64, err error) {
	return TransferTo(ctx, port, 0)
}

// TransferTo is like TransferAway but transfers to the voter on the node; 0 means to
// whichever.
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
		// It does not lead already, which is what was asked for.
		if e.Code == pb.Error_CODE_NOT_LEADER {
			return e.LeaderNode, nil
		}
		return 0, fmt.Errorf("%w: %s", ErrNoTransfer, e.Message)
	}
	return r.GetTransferLeader().GetLeaderNode(), nil
}

// beginTransfer takes a transfer on, or answers the call. Node 0 means whichever.
func (e *evaluation) beginTransfer(call *Call, r *pb.TransferLeaderRequest) {
	if r.GetNodeId() == e.cfg.NodeID && r.GetNodeId() != 0 {
		call.Reply(transferResponse(r.GetNodeId()))
		return
	}
	target := e.group.TransferTarget(r.GetNodeId())
	switch {
	case e.group.Transferring():
		call.Reply(wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d is being handed over; try again",
			e.id))
	case target == 0:
		call.Reply(wire.Failure(pb.Error_CODE_UNAVAILABLE,
			"tablet %d has no other voter that could lead, on node %d", e.id, r.GetNodeId()))
	default:
		e.barrier.take(&exclusive{call: call, target: target})
	}
}

func transferResponse(node uint64) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_TransferLeader{
			TransferLeader: &pb.TransferLeaderResponse{LeaderNode: node},
		},
	}
}

// notTransferred returns the answer to the call of a transfer that the group has given up,
// or whose end this replica will not see.
func notTransferred(tablet uint64) *pb.TabletResponse {
	return wire.Failure(pb.Error_CODE_UNAVAILABLE, "tablet %d could not be handed over", tablet)
}
