package tablet

import (
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Operations on the tablet itself rather than on its rows: the oracle's mark, the
// catalogue, and the status. The first two are proposed in entries of their own, in the
// turn that evaluates them. The status needs neither a leader nor a batch; a copy of it may
// be kept in the tickState, where the node reads it without a message. All of it runs on
// the tablet's goroutine.

// raiseMark raises the oracle's persisted mark to the given one, unless the persisted one is higher
// already (design section 6). It is a raw operation, since a Percolator transaction would itself
// need a timestamp.
func (e *evaluation) raiseMark(call *Call, to uint64) {
	own := e.newProposal()
	own.command.RaiseMark = to
	own.answer(call, markResponse(e.group.Term(), max(to, e.mark)))
	e.ownEntry(own)
}

// ownEntry proposes a command in a separate entry. It first proposes earlier evaluated commands, so
// that the log keeps the order of evaluation. If Raft refuses the proposal, evaluation must not use
// the catalogue, bound or safepoint that it raises.
func (e *evaluation) ownEntry(p *proposal) {
	e.propose(e.proposal)
	if !e.propose(p) {
		e.revertToInFlight()
	}
	e.proposal = e.newProposal()
}

// markResponse returns the answer to a request for the mark: the leader's term and the mark. A
// request that only reads gets the mark as of the last entry handed to the state actor; one that
// raises the mark gets it as of the entry that raises it.
func markResponse(term, mark uint64) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_Mark{Mark: &pb.MarkResponse{Term: term, Mark: mark}},
	}
}

// setCatalogue proposes a newer version of the catalogue. Evaluation uses it immediately,
// before it is applied: everything evaluated from now on follows it in the log (design
// section 7). A version that is not newer succeeds without an entry.
func (e *evaluation) setCatalogue(call *Call, message *pb.Catalogue) {
	response := evaluate.Result(mvcc.Result{})
	if message.GetVersion() <= e.memory.Catalogue.Version() {
		e.proposal.answer(call, response)
		return
	}
	own := e.newProposal()
	own.command.Catalogue = message
	own.answer(call, response)
	e.memory.Raise(memory.NewCatalogue(message), 0, 0)
	e.ownEntry(own)
}

// oldestOf is the number of locks that a status examines for the oldest one. More locks
// than this deserve attention whatever their age.
const oldestOf = 1000

// status returns the replica's figures. A leader also starts a measurement of the tablet when
// one is due (size.go).
func (t *Tablet) status(req *pb.StatusRequest) *pb.TabletResponse {
	if t.leading && t.frozen == nil {
		t.sizing.measure(&t.state, t.pipeline.inflight, req.GetMeasureAbove(), &t.reads)
	}
	first, last := t.group.LogBounds()
	s := &pb.StatusResponse{
		Tablet: t.descriptor, Leader: t.leading, Term: t.group.Term(),
		AppliedIndex: t.group.Visible(), LastIndex: last, FirstIndex: first,
		CatalogueVersion: t.appliedCatalogue.Version(), Locks: uint64(t.memory.Locks()),
		Bound: uint64(t.appliedBound), Safepoint: uint64(t.appliedSafepoint),
		Collected: t.history.Deleted(),
		Reads:     t.counters.reads, Mutations: t.counters.mutations, Batches: t.counters.batches,
		Proposals: t.counters.proposals,
		SizeBytes: t.bytes,
		Load:      t.loads.perSecond(time.Now(), t.counters.operations()),
		SizeKey:   wire.Bytes(t.sizing.half), LoadKey: wire.Bytes(t.loads.half()),
		ReplicaId: t.replica, NodeId: t.cfg.NodeID, LeaderNode: t.group.LeaderNode(),
		Quiescent: t.group.Quiesced(), FrozenFor: t.frozenHere(t.group), Took: t.took,
	}
	// The time without a leader is at least 1 ms: 0 means that the leader is known.
	if t.cfg.Ticker != nil && !t.group.LeaderKnown() {
		s.LeaderlessMs = max(1, int64(t.group.TicksWithoutLeader())*t.cfg.Ticker.interval.Milliseconds())
	}
	if t.leading && t.id != MetaTabletID {
		s.Garbage = t.history.Entries()
		s.OldestLockTs = uint64(t.memory.OldestLock(oldestOf))
		s.Pending = t.memory.Pending()
	}
	if t.failed == nil {
		s.Replicas = t.group.Progress()
	}
	// A quiescent replica whose load is zero, and that has no operations not yet counted in the
	// load, keeps this status until a message arrives that is no status request. The node reads it
	// with Ticker.LastStatus.
	if t.ticking != nil && s.Quiescent && t.failed == nil && req.GetMeasureAbove() != 0 &&
		s.Load == 0 && t.loads.ops == t.counters.operations() {
		t.ticking.status.Store(s)
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Status{Status: s}}
}

// counters count operations since the replica was opened. Only the tablet's turns touch
// them; status reports them.
type counters struct {
	reads, mutations, batches, proposals uint64
}

func (c *counters) operations() uint64 { return c.reads + c.mutations }
