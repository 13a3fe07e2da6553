package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file makes room in the log for what must share it with nothing in flight: a split,
// a change of the replicas, or a transfer of the leadership. One of them is taken on at a
// time. New mutations are deferred from then on, what is in flight drains, the exclusive
// begins, and when it ends the deferred mutations are evaluated again. All of it runs in
// the tablet's turns.

// exclusive is what was taken on. Exactly one of split, change and target is set.
type exclusive struct {
	call     *Call // who asked; nil: nobody did
	split    *pb.SplitRequest
	change   *group.Change
	target   uint64 // the replica that is to lead
	proposed bool   // it is in flight, or under way
	deferred []*Call
}

// exclude takes it on. The group must not rest until it has ended.
func (t *Tablet) exclude(x *exclusive) {
	t.exclusive = x
	t.group.Wake()
}

// tryExclusive begins what was taken on once the drain is over: no proposal and no
// reservation is left. It is called wherever one of these may have been the last.
func (t *Tablet) tryExclusive() {
	x := t.exclusive
	if x == nil || x.proposed || !t.leading || len(t.pipeline.inflight) > 0 ||
		len(t.reservations.held) > 0 {
		return
	}
	switch {
	case x.split != nil:
		t.proposeSplit(x)
	case x.change != nil:
		t.proposeChange(x)
	default:
		// A transfer proposes nothing: the group ends it, or a lost leadership does
		// (transfer.go).
		x.proposed = true // nothing is in flight, so nobody's outcome becomes unknown by it
		t.transferCall = x.call
		t.group.Transfer(x.target)
	}
	t.ready()
}

// endExclusive has the deferred mutations evaluated again, under the range and the
// replicas of now. They are parked on nothing and taken up in a turn of their own, since
// mutate itself may have led here.
func (t *Tablet) endExclusive() {
	x := t.exclusive
	t.exclusive = nil
	for _, call := range x.deferred {
		t.park(call, obstacle{})
	}
	t.self.send(&resume{})
}

// loseExclusive ends the exclusive if the lost proposal was its own, and answers its
// call.
func (t *Tablet) loseExclusive(p *proposal) {
	x := t.exclusive
	if x == nil || (p.command.Replicas == nil && p.command.Split == nil) {
		return
	}
	if x.call != nil {
		x.call.Reply(failure(pb.Error_CODE_NOT_PROPOSED,
			"tablet %d has changed meanwhile; try again", t.id))
	}
	t.endExclusive()
}

// resume has the tablet take up what waited for the end of an exclusive.
type resume struct{}
