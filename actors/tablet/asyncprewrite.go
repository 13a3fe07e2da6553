package tablet

import (
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Prewrites of asynchronous commits (docs/adr/0062). Like a one-phase commit, such a prewrite
// reserves its cells, then gets a timestamp from the oracle, and is then evaluated: its locks are
// proposed with the timestamp as their MinCommitTS. So a reader that has not seen the locks has a
// lower timestamp. A leader that loses its leadership in between proposes nothing; once the locks
// are committed, every later leader applies them before it serves anything.

// asyncPrewrite checks the prewrite and reserves its cells, or parks the call until it can be
// judged.
func (e *evaluation) asyncPrewrite(call *Call, r mvcc.PrewriteRequest) {
	if o := e.reservations.held[r.StartTS]; o != nil {
		// A copy of this message, or another message of the transaction, is under way.
		e.waiting.hold(call, obstacle{start: r.StartTS, token: o.token})
		return
	}
	if e.awaitEffects(call, r.Writes, r.StartTS) {
		return
	}
	r.MinCommitTS = mvcc.MaxTimestamp // only for the check
	result, effects, err := mvcc.Prewrite(e.view, r, e.cfg.Limits)
	switch {
	case e.unjudged(call, result, err):
	case result.Status != mvcc.StatusOK || len(effects) == 0: // refused, or an earlier copy's locks are there
		e.cfg.Metrics.Contended.observe(result)
		e.proposal.answer(call, evaluate.Result(result))
	default:
		request, prewrite := mvcc.OnePhaseRequest{StartTS: r.StartTS, Writes: r.Writes}, r
		e.stampCommit(e.reservations.open(call, request, &prewrite, e.group.Term()))
	}
}

// evaluate returns the result and the effects of the commit or of the prewrite at the timestamp.
func (o *reservedCommit) evaluate(e *evaluation, at mvcc.Timestamp) (mvcc.Result, []mvcc.Mutation, error) {
	if o.prewrite == nil {
		return mvcc.OnePhaseCommit(e.view, o.request, at, e.cfg.Limits)
	}
	r := *o.prewrite
	r.MinCommitTS = at
	return mvcc.Prewrite(e.view, r, e.cfg.Limits)
}
