package tablet

import (
	"errors"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file makes room in the log for what must share it with nothing in flight: a split, a
// step of a merge, a change of the replicas, or a transfer of the leadership. One of them is
// taken on at a time. New mutations are deferred from then on, what is in flight drains, the
// exclusive begins, and when it ends the deferred mutations are evaluated again. All of it runs
// in the tablet's turns.

// barrier is the exclusive that was taken on, and the call that waits for the end of a
// transfer, which may come after this replica's leadership.
type barrier struct {
	group    *group.Group
	op       *exclusive // nil: there is none
	transfer *Call
}

// exclusive is what was taken on. Exactly one of split, merge, change and target is set.
type exclusive struct {
	call     *Call // who asked; nil: nobody did
	split    *pb.SplitRequest
	merge    *pb.MergeRequest
	change   *group.Change
	target   uint64 // the replica that is to lead
	proposed bool   // it is in flight, or under way
	deferred []*Call

	taken, begun time.Time // what is in flight drains from taken to begun
}

// answer answers whoever asked for the exclusive.
func (x *exclusive) answer(r *pb.TabletResponse) {
	if x.call != nil {
		x.call.Reply(r)
	}
}

// take takes the exclusive on. The group must not rest until it has ended.
func (b *barrier) take(x *exclusive) {
	x.taken = time.Now()
	b.op = x
	b.group.Wake()
}

// begin begins the exclusive, or goes on with it: it fills the proposal, if there is
// something to propose now. After an error the exclusive ends.
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
			return false, err // without an error it is tried again
		}
		p.command.Replicas = next
		// Of an entry that is not the last, the proposal has nobody to tell.
		if x.call != nil && x.change.Last(next) {
			p.answer(x.call, changeResponse(next))
		}
	default:
		// A transfer proposes nothing: the group ends it, or a lost leadership does
		// (transfer.go). Nothing is in flight, so nobody's outcome becomes unknown by it.
		x.proposed, b.transfer = true, x.call
		b.group.Transfer(x.target)
		return false, nil
	}
	x.proposed = true
	return true, nil
}

// endTransfer answers the call that waits for the end of a transfer, if there is one.
func (b *barrier) endTransfer(r *pb.TabletResponse) {
	if b.transfer != nil {
		b.transfer.Reply(r)
		b.transfer = nil
	}
}

// clear gives the exclusive up with the leadership, and returns the deferred calls.
func (b *barrier) clear(unknown, refused *pb.TabletResponse) (deferred []*Call) {
	x := b.op
	if x == nil {
		return nil
	}
	b.op = nil
	switch {
	// The call of a transfer is answered when the new leader is known.
	case x.target != 0 && b.transfer != nil:
	// An entry is in flight, or all that is left is to leave the joint configuration.
	case x.proposed || (x.change != nil && x.change.Leaving()):
		x.answer(unknown)
	default:
		x.answer(refused)
	}
	return x.deferred
}

// tryExclusive begins what was taken on once the barrier is reached: no proposal and no
// reservation is left. It is called wherever one of these may have been the last.
func (t *Tablet) tryExclusive() {
	x := t.barrier.op
	if x == nil || x.proposed || !t.leading || len(t.pipeline.inflight) > 0 ||
		len(t.reservations.held) > 0 {
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

var errNotProposed = errors.New("it could not propose the change; try again")

// endExclusive has the deferred mutations evaluated again, under the range and the
// replicas of now. They wait for nothing, and are taken up in a turn of their own, since
// mutate itself may have led here.
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

// resume has the tablet take up what waited for the end of an exclusive.
type resume struct{}
