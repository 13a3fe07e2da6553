package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// exclusive is something that shares the log with nothing in flight: a split, a change of
// the replicas, or the leader's handing over to another. Before it begins, what is in
// flight drains; new mutations wait for its end. Exactly one of split, change and target is
// set.
type exclusive struct {
	call     *Call // who asked; nil: nobody did
	split    *pb.SplitRequest
	change   *group.Change
	target   uint64 // the replica that is to lead
	proposed bool   // it is in flight, or under way
	deferred []*Call
}

// exclude takes it on.
func (t *Tablet) exclude(x *exclusive) {
	t.exclusive = x
	t.group.Wake()
}

// tryExclusive begins what waits once the drain is over: no proposal and no reservation is left.
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
		x.proposed = true // nothing is in flight, so nobody's outcome becomes unknown by it
		t.transferCall = x.call
		t.group.Transfer(x.target)
	}
	t.ready()
}

// endExclusive lets the mutations that waited be evaluated again, under the range and the
// replicas that there are now.
func (t *Tablet) endExclusive() {
	x := t.exclusive
	t.exclusive = nil
	for _, call := range x.deferred {
		t.park(call, obstacle{})
	}
	t.root.Send(t.self, &resume{})
}

// loseExclusive ends it if the proposal that was lost was its own.
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

// resume is the reminder to go on with what has waited for the end of something exclusive.
type resume struct{}
