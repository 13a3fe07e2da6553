package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Requests of the collection of history: raise the bound, confirm that everything that
// began below it is settled, and raise the safepoint (design section 4, "Bounded history"). All
// but confirmJob.Run, which reads the disk on a read worker, runs in the tablet's turns. A
// raised bound or safepoint is a proposal in flight; evaluation uses it from the turn that
// proposes it.

// collect refuses a request that sets none of the steps, or more than one.
func (c *check) collect(r *pb.CollectRequest) {
	n := 0
	for _, ts := range []uint64{r.GetBound(), r.GetConfirm(), r.GetSafepoint()} {
		if ts != 0 {
			n++
			c.startTS(ts)
		}
	}
	if n != 1 {
		c.refuse(pb.Error_CODE_INVALID, "one of bound, confirm and safepoint must be set, not %d", n)
	}
}

// collect executes one of the three steps.
func (e *evaluation) collect(call *Call, r *pb.CollectRequest) {
	bound, confirm, safepoint := mvcc.Timestamp(r.GetBound()), mvcc.Timestamp(r.GetConfirm()),
		mvcc.Timestamp(r.GetSafepoint())
	switch {
	case confirm != 0:
		e.confirm(call, confirm)
	// A transaction that starts above the bound may still read what would be deleted.
	case safepoint > e.memory.Bound:
		call.Reply(wire.Failure(pb.Error_CODE_INVALID,
			"the safepoint cannot be raised to %d, above the bound %d", safepoint, e.memory.Bound))
	case bound > e.memory.Bound || safepoint > e.memory.Safepoint:
		e.raise(call, bound, safepoint)
	default:
		// The bound or safepoint is as high already, but may still be in flight: the answer waits
		// until it is committed.
		e.proposal.answer(call, e.collectResponse())
	}
}

// collectResponse returns the response to each of the three steps, with the bound and the
// safepoint that evaluation uses.
func (e *evaluation) collectResponse() *pb.TabletResponse {
	return &pb.TabletResponse{Result: &pb.TabletResponse_Collect{Collect: &pb.CollectResponse{
		Bound: uint64(e.memory.Bound), Safepoint: uint64(e.memory.Safepoint),
	}}}
}

// raise proposes a higher bound or safepoint in a separate entry. Evaluation uses it immediately:
// everything evaluated from now on follows it in the log.
func (e *evaluation) raise(call *Call, bound, safepoint mvcc.Timestamp) {
	e.memory.Raise(nil, bound, safepoint)
	// A read worker may open a Txn that already shows the deletions, with a view captured before
	// them. RaiseSafepoint makes the worker notice.
	e.reads.RaiseSafepoint(safepoint)
	own := e.newProposal()
	own.command.Bound, own.command.Safepoint = uint64(bound), uint64(safepoint)
	own.answer(call, e.collectResponse())
	e.ownEntry(own)
}

// revertToInFlight resets the bound, the safepoint and the catalogue to what is applied or
// still in flight, after a proposal that raised one of them was lost.
func (o *proposer) revertToInFlight() {
	o.memory.Reset(o.appliedCatalogue, o.appliedBound, o.appliedSafepoint)
	for _, p := range o.pipeline.inflight {
		c := p.command
		o.memory.Raise(nil, mvcc.Timestamp(c.Bound), mvcc.Timestamp(c.Safepoint))
		if c.Catalogue.GetVersion() > o.memory.Catalogue.Version() {
			o.memory.Raise(memory.NewCatalogue(c.Catalogue), 0, 0)
		}
	}
}

// maxUnsettled is the maximum number of locks and intents that a confirmation returns.
const maxUnsettled = 64

// confirm reports whether everything that began below the timestamp is settled here: no
// reservation, lock or intent remains, and nothing in flight can still become one. The applied
// bound keeps it settled: waiting operations are evaluated under it. This turn examines memory and
// what is in flight; a read worker then looks for intents on disk, in a Snap at least as new.
func (e *evaluation) confirm(call *Call, below mvcc.Timestamp) {
	if below > e.memory.Bound {
		call.Reply(wire.Failure(pb.Error_CODE_INVALID,
			"transactions below %d may still commit while the bound is %d", below, e.memory.Bound))
		return
	}
	settled := below <= e.appliedBound
	for start := range e.reservations.held {
		settled = settled && start >= below
	}
	open, locks := e.memory.Unsettled(below, maxUnsettled)
	settled = settled && !open
	var unsettled []*pb.LockInfo
	for _, l := range locks {
		unsettled = append(unsettled, wire.LockInfoPB(l))
	}
	// The tablet has no queue that bounds concurrent confirmations; a full lane refuses more.
	job := &confirmJob{
		shared: e.reads.Shared, call: call, term: e.group.Term(), below: below, descriptor: e.descriptor,
		settled: settled, unsettled: unsettled, answer: e.collectResponse(),
	}
	if !e.reads.background.TrySubmit(job.Run) {
		call.Reply(wire.Failure(pb.Error_CODE_OVERLOADED,
			"tablet %d has too many background jobs waiting to check whether older transactions have ended; try again", e.id))
	}
}

// confirmJob is the part of a confirmation that reads the disk. settled and unsettled are
// the turn's findings.
type confirmJob struct {
	shared     *reads.Shared
	call       *Call
	term       uint64
	below      mvcc.Timestamp
	descriptor *pb.TabletDescriptor
	settled    bool
	unsettled  []*pb.LockInfo
	answer     *pb.TabletResponse
}

// Run looks for intents below the timestamp and answers the call.
func (j *confirmJob) Run() {
	snap := j.shared.Store.Snap()
	defer snap.Close()
	for _, span := range wire.Spans(j.descriptor) {
		for i, err := range snap.AllIntents(span) {
			if err != nil {
				j.call.Reply(wire.Failure(pb.Error_CODE_INTERNAL,
					"tablet %d could not read its store: %v", j.shared.Tablet, err))
				return
			}
			if i.StartTS >= j.below {
				continue
			}
			j.settled = false
			if len(j.unsettled) >= maxUnsettled {
				break
			}
			j.unsettled = append(j.unsettled,
				wire.LockInfoPB(mvcc.LockInfo{Cell: i.Cell, Intent: true, Lock: mvcc.Lock{
					StartTS: i.StartTS, Primary: i.Intent.Primary, Expiry: i.Intent.Expiry,
					Worker: i.Intent.Worker,
				}}))
		}
	}
	// Another leader may have written since, so the findings may be out of date.
	if j.shared.Term() != j.term {
		j.call.Reply(wire.Failure(pb.Error_CODE_NOT_LEADER, "tablet %d lost its leadership",
			j.shared.Tablet))
		return
	}
	r := j.answer.GetCollect()
	r.Confirmed, r.Unsettled = j.settled, j.unsettled
	j.call.Reply(j.answer)
}
