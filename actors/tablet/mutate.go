package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Evaluation of mutations. A batch is evaluated in one turn of the tablet, in order, against
// a Snap of what is visible overlaid with the effects in flight, and proposed in the same
// turn, so that nothing intervenes. An operation that encounters a reservation, or effects
// that it cannot judge yet, waits (waiting.go) and returns here.

// evaluation is the evaluation of one batch of mutations, within one turn.
type evaluation struct {
	*proposer
	reads    *readStages // told of a raised safepoint; pass confirmations to workers
	view     *memory.EvalView
	proposal *proposal
	stamping []*reservedCommit // checked and reserved; they need a commit timestamp
	full     error             // non-nil: the store accepts no new writes
}

// evaluate begins an evaluation against the Snap, which stays open until its end.
func (t *Tablet) evaluate(snap *store.Snap) *evaluation {
	return &evaluation{
		proposer: &t.proposer, reads: &t.reads, view: t.memory.View(snap), proposal: t.newProposal(),
	}
}

// mutate evaluates the calls and proposes their effects, in one turn.
func (t *Tablet) mutate(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	// An exclusive is about to start, or is under way: these calls wait for its end.
	if x := t.barrier.op; x != nil {
		x.deferred = append(x.deferred, calls...)
		return
	}
	snap := t.store.Snap()
	defer snap.Close()
	e := t.evaluate(snap)
	e.proposal.roomFor(len(calls))
	e.full = t.store.WriteBlocked()
	for i, call := range calls {
		t.counters.mutations++
		e.evaluateCall(call)
		if x := t.barrier.op; x != nil { // the remaining calls wait for it
			x.deferred = append(x.deferred, calls[i+1:]...)
			break
		}
	}
	e.proposal.background = !slices.ContainsFunc(e.proposal.replies, awaited)
	t.propose(e.proposal)
	if len(e.stamping) > 0 {
		t.reservations.ask(e.stamping, t.host, t.self, time.Now().Add(t.cfg.MaxWait))
		t.waiting.arm()
	}
	if len(t.waiting.mutations) > 0 { // perhaps for the delayed proposal
		t.proposeDelayed()
	}
	// An exclusive accepted in this batch begins immediately if nothing is in flight.
	t.tryExclusive()
}

// awaited reports whether the operation does more than apply a transaction's decision to its other
// cells.
func awaited(r reply) bool {
	op, ok := r.call.Req.Op.(*pb.TabletRequest_Commit)
	return !ok || op.Commit.GetDecides()
}

// evaluateCall evaluates one operation: it answers the call, adds its effects and answer to
// the proposal, or parks it.
func (e *evaluation) evaluateCall(call *Call) {
	if e.failed != nil { // an earlier operation of the batch could not read the store
		call.Reply(e.refusal(wire.OperationOf(call.Req), call.Req))
		return
	}
	// Operations that finish a transaction are admitted. So are all writes of the meta tablet:
	// its records are few and small, and freeing space depends on them (progress of collection,
	// dropped tables).
	if e.full != nil && e.id != MetaTabletID && !wire.OperationOf(call.Req).Has(wire.Finishes) {
		call.Reply(diskFull(e.cfg.NodeID, e.full, e.group.Single()))
		return
	}
	e.view.Ascend(ascending(call.Req))
	if e.evaluateHere(call) {
		return
	}
	result, muts, err := evaluate.Rule(e.view, call.Req, e.cfg.Limits)
	if e.unjudged(call, result, err) {
		return
	}
	if refusal := e.addEffects(muts); refusal != nil {
		call.Reply(refusal)
		return
	}
	e.cleared(result)
	e.cfg.Metrics.Contended.observe(result)
	e.proposal.trace(e.cfg.Traces, call.Req, muts)
	e.proposal.answer(call, evaluate.Result(result))
}

// unjudged handles an evaluation that failed or encountered a reservation, and reports whether it
// did. A reservation is only in this leader's memory: the client could not resolve it, so the call
// waits here.
func (e *evaluation) unjudged(call *Call, result mvcc.Result, err error) bool {
	on := reserved(result.Locks)
	switch {
	case err != nil:
		e.refuse(call, err)
	case result.Status == mvcc.StatusLocked && on.token != 0:
		e.waiting.hold(call, on)
	default:
		return false
	}
	return true
}

// awaitEffects parks a call that reserves cells until no effect in flight concerns their locks or
// records: the state must not change between its check and its evaluation. It reports whether it
// did.
func (e *evaluation) awaitEffects(call *Call, writes []mvcc.CellWriteRequest, start mvcc.Timestamp) bool {
	for i := range writes {
		if n := e.memory.InFlight(writes[i].Cell, start); n != 0 {
			e.waiting.hold(call, obstacle{proposal: n})
			return true
		}
	}
	return false
}

// ascending returns the number of cells whose newest records the operation looks up. Clients send them
// in ascending order.
func ascending(req *pb.TabletRequest) int {
	return len(req.GetOnePhase().GetWrites()) + len(req.GetPrewrite().GetWrites()) +
		len(req.GetCommit().GetCells()) + len(req.GetRestore().GetWrites())
}

// evaluateHere evaluates an operation for which evaluate.Rule does not suffice, or parks a rollback
// that must wait. It reports whether it did either.
func (e *evaluation) evaluateHere(call *Call) bool {
	switch op := call.Req.Op.(type) {
	case *pb.TabletRequest_OnePhase:
		e.onePhaseCommit(call, wire.OnePhase(op.OnePhase))
		return true
	case *pb.TabletRequest_Prewrite:
		if op.Prewrite.GetAsync() {
			e.asyncPrewrite(call, wire.Prewrite(op.Prewrite))
			return true
		}
	case *pb.TabletRequest_Mark:
		e.raiseMark(call, op.Mark.GetRaiseTo())
		return true
	case *pb.TabletRequest_SetCatalogue:
		e.setCatalogue(call, op.SetCatalogue.GetCatalogue())
		return true
	case *pb.TabletRequest_Split:
		e.beginSplit(call, op.Split)
		return true
	case *pb.TabletRequest_Merge:
		e.barrier.take(&exclusive{call: call, merge: op.Merge})
		return true
	case *pb.TabletRequest_Collect:
		e.collect(call, op.Collect)
		return true
	case *pb.TabletRequest_Checksum:
		e.beginChecksum(call)
		return true
	case *pb.TabletRequest_ChangeReplicas:
		e.beginChange(call, op.ChangeReplicas)
		return true
	case *pb.TabletRequest_TransferLeader:
		e.beginTransfer(call, op.TransferLeader)
		return true
	case *pb.TabletRequest_Rollback:
		// A one-phase commit of the same transaction under way here ends first (design section
		// 5), so that the rollback finds its outcome.
		if o := e.reservations.held[mvcc.Timestamp(op.Rollback.GetStartTs())]; o != nil {
			e.waiting.hold(call, obstacle{start: o.request.StartTS, token: o.token})
			return true
		}
	}
	return false
}

// cleared records the notifications that an operation has cleared or left.
func (e *evaluation) cleared(result mvcc.Result) {
	e.memory.Ended(result.Ended)
	for _, c := range result.Left {
		e.memory.Requeue(c)
	}
}

// refuse answers an operation whose evaluation failed. If the request is neither invalid nor over a
// limit, the store could not be read: then the tablet stops.
func (e *evaluation) refuse(call *Call, err error) {
	if r := evaluate.Refusal(err); r != nil {
		call.Reply(r)
		return
	}
	call.Reply(wire.Failure(pb.Error_CODE_UNAVAILABLE, "tablet %d could not read its store: %v", e.id,
		err))
	e.fail(err)
}

// takeHeld evaluates the held mutations if the pipeline permits.
func (t *Tablet) takeHeld() {
	if len(t.pipeline.held) > 0 && t.pipeline.due(t.group.Single()) {
		t.counters.batches++
		t.mutateHeld()
	}
}

// mutateHeld evaluates the held mutations as one batch, and one entry unless they are large.
// Under load, batches grow with the latency of the log; an idle tablet holds nothing.
func (t *Tablet) mutateHeld() {
	if len(t.pipeline.held) == 0 {
		return
	}
	calls := t.pipeline.take()
	t.inHand = append(t.inHand, calls...)
	// Check them again: since they arrived, the range may have split, the leadership may be
	// lost, or their deadlines may have passed.
	t.mutate(t.filterServable(calls))
}
