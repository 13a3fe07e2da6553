package tablet

import (
	"cmp"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/wire"
)

// One-phase commits. While the oracle is asked for its commit timestamp, such a commit
// exists only as a reservation in this leader's memory; after that it is a proposal like any
// other. The oracle answers on any goroutine, by a commitStamped message; all else runs in
// the tablet's turns.

// reservedCommit is a one-phase commit under way, or, if prewrite is set, the prewrite of an
// asynchronous commit, which takes the same steps. It is checked and its cells are reserved, then
// the oracle provides its commit timestamp, then its effects are proposed (design section 4,
// "Order"). That takes two turns, or one if the oracle answers without a message. The reservation
// stays until the effects are visible or the commit is abandoned or lost.
type reservedCommit struct {
	token    uint64
	term     uint64
	request  mvcc.OnePhaseRequest
	prewrite *mvcc.PrewriteRequest // instead, of an asynchronous commit: request has its writes
	calls    []*Call               // the first, and its retransmissions
	first    [1]*Call
	commitTS mvcc.Timestamp
	proposed bool
	until    time.Time // deadline of the oracle's answer
	spare    bool      // the client wants a timestamp for its next transaction (docs/adr/0061)
}

// timestamps returns how many timestamps the commit needs: its own, and a spare one if the client
// wants it.
func (o *reservedCommit) timestamps() int {
	if o.spare {
		return 2
	}
	return 1
}

// lock returns the lock that reserves the cells. Its Token distinguishes it from a lock in
// the store.
func (o *reservedCommit) lock() *mvcc.Lock {
	return &mvcc.Lock{
		StartTS: o.request.StartTS, Token: o.token, CommitTS: o.commitTS, Kind: mvcc.KindPut,
	}
}

// commitStamped is the oracle's answer for the one-phase commits that asked together.
type commitStamped struct {
	waiting []*reservedCommit
	first   mvcc.Timestamp
	err     error
}

// onePhaseCommit checks the transaction and reserves its cells, or parks the call until it
// can be judged.
func (e *evaluation) onePhaseCommit(call *Call, r mvcc.OnePhaseRequest) {
	if o := e.reservations.held[r.StartTS]; o != nil {
		// The same transaction is under way: this call is a retransmission.
		if o.proposed { // the retransmission will find the commit record
			e.waiting.hold(call, obstacle{start: r.StartTS, token: o.token})
			return
		}
		o.calls = append(o.calls, call) // answered with the first
		return
	}
	if e.awaitEffects(call, r.Writes, r.StartTS) {
		return
	}
	e.view.Twice(len(r.Writes))
	result, err := mvcc.CheckOnePhase(e.view, r)
	switch {
	case e.unjudged(call, result, err):
	// A refusal may depend on effects in flight, so it waits for them in the proposal.
	case result.Status != mvcc.StatusOK:
		e.cfg.Metrics.Contended.observe(result)
		e.proposal.answer(call, evaluate.Result(result))
	default:
		e.stampCommit(e.reservations.open(call, r, nil, e.group.Term()))
	}
}

// stampCommit begins the commit and gets its timestamp: in this turn if the oracle answers
// without a message, otherwise together with the others of the batch. Between two turns the
// reservation is in the lock table. Within one turn nothing reads the table, so the
// reservation is added only once, with the timestamp.
func (e *evaluation) stampCommit(o *reservedCommit) {
	if commitTS, ok := e.host.TimestampsNow(o.timestamps()); ok {
		e.continueCommit(o, commitTS)
		return
	}
	e.reservations.put(o)
	e.stamping = append(e.stamping, o)
}

// reservations are the one-phase commits and the prewrites of asynchronous commits under way, and
// their locks in the leader's memory. Only the tablet's turns touch them.
type reservations struct {
	memory *memory.Memory
	held   map[mvcc.Timestamp]*reservedCommit // by start timestamp
	tokens uint64                             // last token; not reused in later terms either
}

// open records a new one-phase commit, or a new prewrite of an asynchronous commit, under a new
// token.
func (r *reservations) open(call *Call, request mvcc.OnePhaseRequest, prewrite *mvcc.PrewriteRequest,
	term uint64) *reservedCommit {
	r.tokens++
	o := &reservedCommit{
		token: r.tokens, term: term, request: request, prewrite: prewrite, first: [1]*Call{call},
		spare: call.Req.GetOnePhase().GetSpare() || call.Req.GetPrewrite().GetSpare(),
	}
	o.calls = o.first[:]
	r.held[request.StartTS] = o
	return o
}

// put reserves the commit's cells, replacing its own reservation without a commit
// timestamp.
func (r *reservations) put(o *reservedCommit) { r.memory.Reserve(o.request.Writes, o.lock()) }

// holds reports whether the commit is still under way; a later one of the same transaction
// is a different one.
func (r *reservations) holds(o *reservedCommit) bool { return r.held[o.request.StartTS] == o }

// release removes the reservations, once the effects are visible or the commits are abandoned or
// lost.
func (r *reservations) release(commits ...*reservedCommit) {
	for _, o := range commits {
		if r.holds(o) {
			delete(r.held, o.request.StartTS)
			r.memory.Release(o.request.Writes, o.token)
		}
	}
}

// abandon ends a one-phase commit that was certainly not proposed, and answers its calls.
func (r *reservations) abandon(o *reservedCommit, answer *pb.TabletResponse) {
	r.release(o)
	replyAll(o.calls, answer)
}

// overdue returns the one-phase commits that have waited too long for the oracle, and
// whether others still wait. A reservation blocks everyone at its cells and is known only
// here, so it must not depend on an answer that was lost. A late answer finds another
// reservation or none, and changes nothing.
func (r *reservations) overdue(now time.Time) (overdue []*reservedCommit, waiting bool) {
	for _, o := range r.held {
		switch {
		case o.proposed: // only Raft can decide the outcome now
		case now.After(o.until):
			overdue = append(overdue, o)
		default:
			waiting = true
		}
	}
	return overdue, waiting
}

// ask requests the timestamps of the one-phase commits from the oracle. The time until is the
// deadline of the answer.
func (r *reservations) ask(waiting []*reservedCommit, host Host, self *mailbox, until time.Time) {
	var traced *tracing.Span
	n := 0
	for _, o := range waiting {
		o.until = until
		n += o.timestamps()
		traced = cmp.Or(mark(o.calls, "oracle"), traced)
	}
	host.Timestamps(n, traced, func(first mvcc.Timestamp, err error) {
		self.send(&commitStamped{waiting: waiting, first: first, err: err})
	})
}

// onCommitStamped continues the one-phase commits of one request: each is checked against
// what may have changed since (term, reservation), evaluated and proposed.
func (t *Tablet) onCommitStamped(m *commitStamped) {
	if m.err != nil {
		for _, o := range m.waiting {
			t.reservations.abandon(o, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
				"no commit timestamp: %v; try again", m.err))
		}
		// The cells are free: evaluate the operations that waited for them.
		t.retryWaiting()
		return
	}
	snap := t.store.Snap()
	defer snap.Close()
	e := t.evaluate(snap)
	next := m.first
	for _, o := range m.waiting {
		e.continueCommit(o, next)
		next += mvcc.Timestamp(o.timestamps())
	}
	t.propose(e.proposal)
	t.retryWaiting()
}

// continueCommit evaluates the commit at commitTS and proposes its effects. The spare timestamp,
// if there is one, is the next one.
func (e *evaluation) continueCommit(o *reservedCommit, commitTS mvcc.Timestamp) {
	if !e.reservations.holds(o) || o.term != e.group.Term() ||
		!e.leading {
		e.reservations.abandon(o, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
			"tablet %d lost its leadership before the commit was decided; try again", e.id))
		return
	}
	e.memory.Took(commitTS)
	e.view.Ascend(len(o.request.Writes))
	result, muts, err := o.evaluate(e, commitTS)
	if err != nil {
		if answer := evaluate.Refusal(err); answer != nil {
			e.reservations.abandon(o, answer)
			return
		}
		e.reservations.abandon(o, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
			"tablet %d could not read its store: %v", e.id, err))
		e.fail(err)
		return
	}
	if refusal := e.addEffects(muts); refusal != nil {
		e.reservations.abandon(o, refusal)
		return
	}
	e.cleared(result)
	if result.Status == mvcc.StatusOK {
		o.commitTS = commitTS
		e.reservations.put(o) // readers below commitTS no longer have to wait
	}
	o.proposed = true
	mark(o.calls, "timestamp")
	e.proposal.trace(e.cfg.Traces, o.calls[0].Req, muts)
	e.proposal.holds = append(e.proposal.holds, o)
	for _, call := range o.calls {
		answer := evaluate.Result(result)
		// All calls are copies of one message, of which the client uses one answer.
		if o.spare && result.Status == mvcc.StatusOK {
			answer.GetMutation().SpareTs = uint64(commitTS + 1)
		}
		e.proposal.answer(call, answer)
	}
}
