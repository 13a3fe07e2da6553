package tablet

import (
	"errors"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Changes of the tablet's replicas (design section 5). The tablet asks the group for the next
// entry, proposes it alone in the log, and applies it. Each entry's context is the resulting
// descriptor, so that descriptor, epoch and configuration change in one Txn. One change is
// under way at a time, as the tablet's exclusive; a leader that finds a joint configuration
// resumes it without a caller. All of it runs in the tablet's turns.

var errRemoved = errors.New("tablet: this replica was removed")

// beginChange accepts a change, or answers the call immediately. A completed change is
// answered like a new one, so that callers may retry.
func (e *evaluation) beginChange(call *Call, r *pb.ChangeReplicasRequest) {
	switch next, done, err := group.NextDescriptor(e.descriptor, r.GetChanges()); {
	case call.Req.Epoch == 0:
		call.Reply(wire.Failure(pb.Error_CODE_INVALID, "a change of replicas needs the tablet's epoch"))
	case err != nil:
		call.Reply(wire.Failure(pb.Error_CODE_INVALID, "%v", err))
	case done:
		e.proposal.answer(call, changeResponse(e.descriptor))
	// Another change has begun, here or under an earlier leader, and must be left first.
	case group.IsJoint(e.descriptor):
		call.Reply(wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d changes its replicas; try again",
			e.id))
	case len(group.Voters(next)) == 0:
		call.Reply(wire.Failure(pb.Error_CODE_INVALID, "tablet %d would have no voter left", e.id))
	default:
		// A voter that is far behind or down could keep the group from reaching a quorum.
		if err := e.group.Lagging(r.GetChanges()); err != nil {
			call.Reply(wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d: %v", e.id, err))
			return
		}
		e.barrier.take(&exclusive{call: call, change: group.NewChange(r.GetChanges())})
	}
}

func changeResponse(d *pb.TabletDescriptor) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_ChangeReplicas{
			ChangeReplicas: &pb.ChangeReplicasResponse{Tablet: d},
		},
	}
}

// changeVisible handles a change of the replicas that has become visible. A leader continues
// the change; a removed replica stops.
func (t *Tablet) changeVisible(d *pb.TabletDescriptor) {
	t.host.Changed(d)
	if group.WasRemoved(d, t.replica) {
		t.remove()
		return
	}
	t.group.WakeForChange()
	x := t.barrier.op
	if !t.leading || x == nil || x.change == nil {
		return
	}
	x.proposed = false
	if x.change.Applied(d) {
		t.endExclusive()
	} else {
		t.tryExclusive()
	}
}

// resumeChange leaves a joint configuration that an earlier leader entered, or that this one
// could not leave before, and retries an exclusive that could not begin. It is called when a
// leadership begins and on each of the leader's ticks.
func (t *Tablet) resumeChange() {
	if !t.leading {
		return
	}
	if t.barrier.op == nil && group.IsJoint(t.descriptor) {
		t.barrier.take(&exclusive{change: &group.Change{}})
	}
	t.tryExclusive()
}
