package tablet

import (
	"errors"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Start and end of a replica's leadership, and its final stop. All of it runs in the
// tablet's turns.

// tryLead starts serving if this replica is elected and an entry of its own term is visible. It is
// called wherever either may have become true.
func (t *Tablet) tryLead() {
	if !t.leading && t.failed == nil && t.group.MayLead() {
		t.lead()
	}
}

// lead begins to serve. An entry of this term is visible, and with it everything that
// earlier leaders wrote. It loads the locks into memory first: until then nothing may be
// read or evaluated.
func (t *Tablet) lead() {
	if err := t.memory.Lead(t.descriptor, t.group.Term()); err != nil {
		t.fail(err)
		return
	}
	t.leading = true
	t.cfg.Logger.Debug("leading a tablet", "tablet", t.id, "term", t.group.Term())
	t.cfg.Metrics.Led.Add(1)
	t.history.Forget()
	t.beginPass()
	// Read workers compare this term with that of their capture.
	t.reads.SetTerm(t.group.Term())
	t.publishLeadership()
	t.host.Leading(t.descriptor)
	t.resumeChange()
}

// stepDown ends this replica's leadership, or clears the state of a replica that stops. It
// answers every call that waits here, except that of a transfer whose end will still be known:
// onLeader answers that one after the election. Reads that a worker has, and first reads for which
// the oracle was asked a timestamp, are answered when they return. What was proposed has an unknown
// outcome, what was not has certainly not happened, and nothing evaluated survives.
func (t *Tablet) stepDown(cause error) {
	t.leading = false
	t.publishLeadership()
	t.reads.SetTerm(0)
	if !errors.Is(cause, errLost) {
		t.barrier.endTransfer(notTransferred(t.id))
	}
	unknown := wire.Failure(pb.Error_CODE_UNKNOWN,
		"tablet %d lost its leadership (%v): the outcome is unknown", t.id, cause)
	lost, held := t.pipeline.clear()
	for _, p := range lost {
		t.lose(p, unknown)
	}
	refused := t.notLeader("this node does not lead tablet %d: %v", t.id, cause)
	// The remaining reservations belong to commits that were not proposed: lose has released the
	// others.
	for _, o := range t.reservations.held {
		replyAll(o.calls, refused)
	}
	replyAll(t.batch.Take(), refused)
	replyAll(held, refused)
	replyAll(t.barrier.clear(unknown, refused), refused)
	for _, w := range slices.Concat(t.waiting.mutations, t.waiting.reads) {
		w.call.Reply(refused)
	}
	for _, calls := range t.reads.clear() {
		replyAll(calls, refused)
	}
	for _, w := range t.changes {
		w.call.Reply(refused)
	}
	t.waiting.mutations, t.waiting.reads, t.changes = nil, nil, nil
	clear(t.reservations.held)
	t.memory.Clear()
	t.revertToInFlight()
	t.history.Forget()
	// A measurement under way is abandoned: only a leader can propose its result.
	t.sizing.run, t.sizing.half, t.sizing.halved = nil, "", false
}

// fail stops the replica after a storage fault or a panic. It answers all callers, acknowledges
// nothing from then on, and notifies the host (design section 10). Only the first error counts.
func (t *Tablet) fail(err error) {
	if t.failed != nil {
		return
	}
	t.failed = err
	t.cfg.Logger.Error("tablet stopped", "tablet", t.id, "error", err)
	t.stepDown(err)
	t.host.Failed(t.id, err)
}

// remove stops this replica, which no longer belongs to its group. Its node destroys it.
func (t *Tablet) remove() {
	if t.removed() {
		return
	}
	t.cfg.Logger.Info("replica removed from its tablet", "tablet", t.id, "replica", t.replica)
	t.stepDown(errRemoved)
	t.failed = errRemoved
	t.host.Removed(t.id)
}
