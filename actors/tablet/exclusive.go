package tablet

import (
	"errors"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Exclusive operations, which share the log with nothing in flight: a split, a step of a
// merge, a change of the replicas, or a transfer of the leadership. One is accepted at a
// time. From then on new mutations are deferred while those in flight drain; then the
// exclusive begins, and when it ends the deferred mutations are evaluated again. All of it
// runs in the tablet's turns.

// barrier is the accepted exclusive, and the call that waits for the end of a transfer,
// which may outlast this replica's leadership.
type barrier struct {
	group    *group.Group
	op       *exclusive // nil: none
	transfer *Call
}

// exclusive is an accepted operation. Exactly one of split, merge, change and target is set.
type exclusive struct {
	call     *Call // the requester; nil: none
	split    *pb.SplitRequest
	merge    *pb.MergeRequest
	change   *group.Change
	target   uint64 // the replica to transfer the leadership to
	proposed bool   // its entry is in flight, or its transfer under way
	deferred []*Call

	taken, begun time.Time // mutations in flight drain from taken to begun
}

// answer answers the requester of the exclusive.
func (x *exclusive) answer(r *pb.TabletResponse) {
	if x.call != nil {
		x.call.Reply(r)
	}
}

// take accepts the exclusive. The group must not quiesce until it has ended.
func (b *barrier) take(x *exclusive) {
	x.taken = time.Now()
	b.op = x
	b.group.Wake()
}

// begin begins or continues the exclusive: it fills the proposal if there is something to
// propose now. An error ends the exclusive.
func (b *barrier) begin(p *proposal, tablet *pb.TabletDescriptor) (filled bool, err error) {
	x := b.op
	x.begun = time.Now()
	switch {
	case x.split != nil:
		left, right := splitDescriptor(tablet, x.split)
		p.command.Split = &wire.Split{Left: left, Right: right}
		p.answer(x.call, splitResponse(left, right))
	case x.merge != nil:
		p.command.Merge = mergeStep(tablet, x.merge)
		p.answer(x.call, mergeResponse(p.command.Merge.Tablet))
	case x.change != nil:
		next, err := b.group.Next(x.change)
		if next == nil {
			return false, err // if err is nil, the change is tried again later
		}
		p.command.Replicas = next
		// Only the last entry of a change answers the call.
		if x.call != nil && x.change.Last(next) {
			p.answer(x.call, changeResponse(next))
		}
	default:
		// A transfer proposes nothing. It ends when the group reports so, or when leadership is
		// lost (transfer.go). Nothing is in flight, so no outcome becomes unknown.
		x.proposed, b.transfer = true, x.call
		b.group.Transfer(x.target)
		return false, nil
	}
	x.proposed = true
	return true, nil
}

// endTransfer answers the call that waits for the end of a transfer, if any.
func (b *barrier) endTransfer(r *pb.TabletResponse) {
	if b.transfer != nil {
		b.transfer.Reply(r)
		b.transfer = nil
	}
}

// clear abandons the exclusive when the leadership ends, and returns the deferred calls.
func (b *barrier) clear(unknown, refused *pb.TabletResponse) (deferred []*Call) {
	x := b.op
	if x == nil {
		return nil
	}
	b.op = nil
	switch {
	// The call of a transfer is answered when the new leader is known.
	case x.target != 0 && b.transfer != nil:
	// An entry is in flight, or only leaving the joint configuration remains.
	case x.proposed || (x.change != nil && x.change.Leaving()):
		x.answer(unknown)
	default:
		x.answer(refused)
	}
	return x.deferred
}

// tryExclusive begins the accepted exclusive once the barrier is reached: no proposal and no
// reservation is left. It is called wherever the last of these may have ended.
func (t *Tablet) tryExclusive() {
	x := t.barrier.op
	if x == nil || x.proposed || !t.leading {
		return
	}
	t.proposeDelayed()
	if len(t.pipeline.inflight) > 0 || len(t.reservations.held) > 0 {
		return
	}
	p := t.newProposal()
	filled, err := t.barrier.begin(p, t.descriptor)
	if filled && !t.propose(p) {
		err = errNotProposed
	}
	if err != nil {
		x.answer(wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d: %v", t.id, err))
		t.endExclusive()
	}
	t.ready()
}

var errNotProposed = errors.New("the change could not be proposed; try again")

// endExclusive evaluates the deferred mutations again, under the current range and replicas, in a
// separate turn, since mutate may be the caller.
func (t *Tablet) endExclusive() {
	x := t.barrier.op
	t.cfg.Logger.Debug("mutations were deferred", "tablet", t.id, "split", x.split != nil, "merge", x.merge != nil,
		"drain", x.begun.Sub(x.taken), "change", time.Since(x.begun), "deferred", len(x.deferred))
	for _, call := range x.deferred {
		t.waiting.hold(call, obstacle{})
	}
	t.barrier.op = nil
	t.self.send(&resume{})
}

// resume makes the tablet evaluate the mutations deferred by an exclusive.
type resume struct{}
