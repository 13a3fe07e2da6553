package tablet

import (
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file carries one-phase commits through. Between two turns such a commit is held by
// its reservation, which is in this leader's memory alone, while the oracle is asked for
// its commit timestamp; after that it is a proposal like any other. The oracle's answer
// comes on any goroutine and returns as a commitStamped message; all else runs in the tablet's
// turns.

// onePhase is a one-phase commit under way. It is checked and its cells are reserved,
// then the oracle gives its commit timestamp, then its effects are proposed (invariant 10
// of design section 4). That takes two turns, or one if the oracle can be asked without a
// message. The reservation stays until the effects are visible.
type onePhase struct {
	token    uint64
	term     uint64
	request  mvcc.OnePhaseRequest
	calls    []*Call // the first, and the copies that have joined it
	first    [1]*Call
	commitTS mvcc.Timestamp
	proposed bool
	until    time.Time // the oracle's answer is not waited for any longer
}

// lock returns the lock that reserves the cells. Its Token tells it from a lock in the
// store.
func (o *onePhase) lock() *mvcc.Lock {
	return &mvcc.Lock{
		StartTS: o.request.StartTS, Token: o.token, CommitTS: o.commitTS, Kind: mvcc.KindPut,
	}
}

// commitStamped is the oracle's answer for the one-phase commits that asked together.
type commitStamped struct {
	waiting []*onePhase
	first   mvcc.Timestamp
	err     error
}

// onePhaseCommit checks the transaction and reserves its cells, or parks the call until
// it can be judged.
func (e *evaluation) onePhaseCommit(call *Call, r mvcc.OnePhaseRequest) {
	if o := e.reservations.held[r.StartTS]; o != nil {
		// The same transaction is under way: the call was sent a second time.
		if o.proposed { // it will find the commit record
			e.waiting.hold(call, obstacle{start: r.StartTS, token: o.token})
			return
		}
		o.calls = append(o.calls, call) // a second copy joins the first (invariant 5)
		return
	}
	for i := range r.Writes {
		// Something in flight has an effect on the cell's lock or records: the check
		// waits until it is visible or lost.
		if n := e.memory.InFlight(r.Writes[i].Cell, r.StartTS); n != 0 {
			e.waiting.hold(call, obstacle{proposal: n})
			return
		}
	}
	result, err := mvcc.CheckOnePhase(e.view, r)
	switch {
	case err != nil:
		e.refuse(call, err)
	case result.Status == mvcc.StatusLocked && reserved(result.Locks).token != 0:
		e.waiting.hold(call, reserved(result.Locks))
	// A refusal may rest on effects in flight, so it waits for them with the others'
	// answers.
	case result.Status != mvcc.StatusOK:
		e.cfg.Metrics.Contended.observe(result)
		e.proposal.answer(call, evaluate.Result(result))
	default:
		e.stampCommit(call, r)
	}
}

// stampCommit begins the commit and gets its timestamp: in this turn if the oracle can be
// asked without a message, else together with the others of the batch. Between two turns
// the reservation is in the lock table. Within one nobody looks there, so it is put there
// only once, with the timestamp.
func (e *evaluation) stampCommit(call *Call, r mvcc.OnePhaseRequest) {
	o := e.reservations.open(call, r, e.group.Term())
	if commitTS, ok := e.host.TimestampsNow(1); ok {
		e.continueOnePhase(o, commitTS)
		return
	}
	e.reservations.put(o)
	e.stamping = append(e.stamping, o)
}

// reservations are the one-phase commits under way, and the locks that they hold in the
// leader's memory. Only the tablet's turns touch them.
type reservations struct {
	memory *memory.Memory
	held   map[mvcc.Timestamp]*onePhase // by start timestamp
	tokens uint64                       // given to them; never again, whoever leads
}

// open records a one-phase commit that begins, under a new token.
func (r *reservations) open(call *Call, request mvcc.OnePhaseRequest, term uint64) *onePhase {
	r.tokens++
	o := &onePhase{token: r.tokens, term: term, request: request, first: [1]*Call{call}}
	o.calls = o.first[:]
	r.held[request.StartTS] = o
	return o
}

// put reserves the commit's cells, in place of its own reservation without a commit
// timestamp.
func (r *reservations) put(o *onePhase) { r.memory.Reserve(o.request.Writes, o.lock()) }

// holds reports whether the commit is still under way; a later one of the same
// transaction is another.
func (r *reservations) holds(o *onePhase) bool { return r.held[o.request.StartTS] == o }

// release removes the reservation, once the effects are visible or surely never will be.
func (r *reservations) release(o *onePhase) {
	if r.holds(o) {
		delete(r.held, o.request.StartTS)
		r.memory.Release(o.request.Writes, o.token)
	}
}

// abandon ends a one-phase commit that was surely not proposed, and answers its calls.
func (r *reservations) abandon(o *onePhase, answer *pb.TabletResponse) {
	r.release(o)
	for _, call := range o.calls {
		call.Reply(answer)
	}
}

// overdue returns the one-phase commits that have waited too long for the oracle, and
// whether others still wait. A reservation stops everybody at its cells and is known only
// here, so it must not depend on an answer that was lost. An answer that comes late finds
// another reservation or none, and changes nothing.
func (r *reservations) overdue(now time.Time) (overdue []*onePhase, waiting bool) {
	for _, o := range r.held {
		switch {
		case o.proposed: // only Raft can tell now
		case now.After(o.until):
			overdue = append(overdue, o)
		default:
			waiting = true
		}
	}
	return overdue, waiting
}

// ask asks the oracle for the timestamps of one-phase commits, one each, and bounds the wait
// for them.
func (r *reservations) ask(waiting []*onePhase, host Host, self *mailbox, until time.Time) {
	for _, o := range waiting {
		o.until = until
	}
	host.Timestamps(len(waiting), func(first mvcc.Timestamp, err error) {
		self.send(&commitStamped{waiting: waiting, first: first, err: err})
	})
}

// onCommitStamped continues the one-phase commits that asked together: each is checked against
// what may have changed in between (term, reservation), evaluated and proposed.
func (t *Tablet) onCommitStamped(m *commitStamped) {
	if m.err != nil {
		for _, o := range m.waiting {
			t.reservations.abandon(o, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
				"no commit timestamp: %v; try again", m.err))
		}
		// The cells are free: whoever waited for them is evaluated now.
		t.retryWaiting()
		return
	}
	snap := t.store.Snap()
	defer snap.Close()
	e := t.evaluate(snap)
	for i, o := range m.waiting {
		e.continueOnePhase(o, m.first+mvcc.Timestamp(i))
	}
	t.propose(e.proposal)
	t.retryWaiting()
}

func (e *evaluation) continueOnePhase(o *onePhase, commitTS mvcc.Timestamp) {
	if !e.reservations.holds(o) || o.term != e.group.Term() ||
		!e.leading {
		e.reservations.abandon(o, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
			"tablet %d changed its leader in between; try again", e.id))
		return
	}
	e.memory.Took(commitTS)
	result, muts, err := mvcc.OnePhaseCommit(e.view, o.request, commitTS, e.cfg.Limits)
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
		e.reservations.put(o) // readers below it need not wait any more
	}
	o.proposed = true
	e.proposal.trace(e.cfg.Traces, o.calls[0].Req, muts)
	e.proposal.holds = append(e.proposal.holds, o)
	for _, call := range o.calls {
		e.proposal.answer(call, evaluate.Result(result))
	}
}
