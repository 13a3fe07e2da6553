package tablet

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Requests for a transfer of the leadership. The group carries out the transfer and reports
// its end. Until then the call waits in the barrier, also beyond the end of this replica's
// leadership. One transfer is under way at a time, as the tablet's exclusive. TransferTo
// runs on its caller's goroutine, the rest in the tablet's turns.

// ErrNoTransfer is wrapped by the errors of TransferTo: as far as is known, the leadership was not
// transferred.
var ErrNoTransfer = errors.New("tablet: leadership was not transferred")

// TransferTo asks the tablet's leader, if it is the replica at port, to transfer the leadership to
// the voter on the given node; 0 means the voter with the most complete log. It returns the node that
// leads afterwards, or 0 if the replica did not lead and knows no leader.
func TransferTo(ctx context.Context, port *Port, node uint64) (leaderNode uint64, err error) {
	r, err := port.Ask(ctx, &pb.TabletRequest{
		Op: &pb.TabletRequest_TransferLeader{
			TransferLeader: &pb.TransferLeaderRequest{NodeId: node},
		},
	}, true)
	if err != nil {
		return 0, fmt.Errorf("%w: request the transfer to %s: %w", ErrNoTransfer, voterOn(node), err)
	}
	if e := r.GetError(); e != nil {
		// The replica does not lead any more, which was the aim.
		if e.Code == pb.Error_CODE_NOT_LEADER {
			return e.LeaderNode, nil
		}
		return 0, fmt.Errorf("%w: %s", ErrNoTransfer, e.Message)
	}
	return r.GetTransferLeader().GetLeaderNode(), nil
}

// beginTransfer accepts a transfer, or answers the call. Node 0 means any.
func (e *evaluation) beginTransfer(call *Call, r *pb.TransferLeaderRequest) {
	if r.GetNodeId() == e.cfg.NodeID && r.GetNodeId() != 0 {
		call.Reply(transferResponse(r.GetNodeId()))
		return
	}
	target := e.group.TransferTarget(r.GetNodeId())
	switch {
	case e.group.Transferring():
		call.Reply(wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d is already transferring its leadership; try again",
			e.id))
	case target == 0:
		call.Reply(wire.Failure(pb.Error_CODE_UNAVAILABLE,
			"tablet %d can't transfer its leadership to %s now: none is active and up to date", e.id,
			voterOn(r.GetNodeId())))
	default:
		e.barrier.take(&exclusive{call: call, target: target})
	}
}

// voterOn names the possible targets of a transfer.
func voterOn(node uint64) string {
	if node == 0 {
		return "another voter"
	}
	return fmt.Sprintf("a voter on node %d", node)
}

func transferResponse(node uint64) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_TransferLeader{
			TransferLeader: &pb.TransferLeaderResponse{LeaderNode: node},
		},
	}
}

// notTransferred returns the answer to the call of a transfer that the group has abandoned,
// or whose end this replica will not see.
func notTransferred(tablet uint64) *pb.TabletResponse {
	return wire.Failure(pb.Error_CODE_UNAVAILABLE, "tablet %d could not transfer its leadership", tablet)
}
