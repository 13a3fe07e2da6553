package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// collect refuses a request that asks for none, or several, of the steps.
func (c *check) collect(r *pb.CollectRequest) {
	n := 0
	for _, ts := range []uint64{r.GetBound(), r.GetConfirm(), r.GetSafepoint()} {
		if ts != 0 {
			n++
			c.startTS(ts)
		}
	}
	if n != 1 {
		c.refuse(failure(pb.Error_CODE_INVALID,
			"one of bound, confirm and safepoint must be set, not %d", n))
	}
}

// collect carries out one step of design section 4, invariant 11.
func (e *evaluation) collect(call *Call, r *pb.CollectRequest) {
	bound, confirm, safepoint := mvcc.Timestamp(r.GetBound()), mvcc.Timestamp(r.GetConfirm()),
		mvcc.Timestamp(r.GetSafepoint())
	switch {
	case confirm != 0:
		e.confirm(call, confirm)
	case safepoint > e.memory.Bound:
		call.Reply(failure(pb.Error_CODE_INVALID,
			"the safepoint cannot be raised to %d, above the bound %d", safepoint, e.memory.Bound))
	case bound > e.memory.Bound || safepoint > e.memory.Safepoint:
		e.raise(call, bound, safepoint)
	default:
		e.proposal.answer(call, e.collectResponse(nil, false))
	}
}

func (e *evaluation) collectResponse(unsettled []*pb.LockInfo, confirmed bool) *pb.TabletResponse {
	return &pb.TabletResponse{Result: &pb.TabletResponse_Collect{Collect: &pb.CollectResponse{
		Bound: uint64(e.memory.Bound), Safepoint: uint64(e.memory.Safepoint), Confirmed: confirmed,
		Unsettled: unsettled,
	}}}
}

// raise proposes a higher bound or safepoint, in an entry of its own. Evaluation honours
// it from this moment: whatever is evaluated after it is after it in the log as well.
func (e *evaluation) raise(call *Call, bound, safepoint mvcc.Timestamp) {
	e.memory.Bound, e.memory.Safepoint = max(e.memory.Bound, bound),
		max(e.memory.Safepoint, safepoint)
	e.seenSafepoint.Store(uint64(e.memory.Safepoint))
	own := e.newProposal()
	own.command.Bound, own.command.Safepoint = uint64(bound), uint64(safepoint)
	own.answer(call, e.collectResponse(nil, false))
	if !e.ownEntry(own) {
		e.restore()
	}
}

// restore goes back to what is applied or still in flight, after a proposal was lost.
func (t *Tablet) restore() {
	t.memory.Bound, t.memory.Safepoint, t.memory.Catalogue = t.appliedBound, t.appliedSafepoint,
		t.appliedCatalogue
	for _, p := range t.pipeline.inflight {
		t.memory.Bound = max(t.memory.Bound, mvcc.Timestamp(p.command.Bound))
		t.memory.Safepoint = max(t.memory.Safepoint, mvcc.Timestamp(p.command.Safepoint))
		if p.command.Catalogue.GetVersion() > t.memory.Catalogue.Version() {
			t.memory.Catalogue = memory.NewCatalogue(p.command.Catalogue)
		}
	}
}

// maxUnsettled bounds how many locks and intents a confirmation names.
const maxUnsettled = 64

// confirm answers whether everything that began below the timestamp is settled here: no
// one-phase commit, no lock, no intent, and none in flight that could still become one.
// That it stays so is the applied bound's doing, and whatever of it waits here is
// evaluated under it. Memory and flight are looked through now; the intents on disk, by a
// read worker, in what is visible after that.
func (e *evaluation) confirm(call *Call, below mvcc.Timestamp) {
	if below > e.memory.Bound {
		call.Reply(failure(pb.Error_CODE_INVALID,
			"what began below %d is not settled while the bound is %d", below, e.memory.Bound))
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
	taken := e.background.trySubmit(&confirmJob{
		tablet: e.Tablet, call: call, term: e.group.Term(), below: below, descriptor: e.descriptor,
		settled: settled, unsettled: unsettled, answer: e.collectResponse(nil, false),
	})
	if !taken {
		call.Reply(failure(pb.Error_CODE_OVERLOADED,
			"tablet %d has too many confirmations waiting; try again", e.id))
	}
}

// confirmJob is the part of a confirmation that reads the disk.
type confirmJob struct {
	tablet     *Tablet
	call       *Call
	term       uint64
	below      mvcc.Timestamp
	descriptor *pb.TabletDescriptor
	settled    bool
	unsettled  []*pb.LockInfo
	answer     *pb.TabletResponse
}

func (j *confirmJob) run() {
	snap := j.tablet.store.Snap()
	defer snap.Close()
	for _, span := range wire.Spans(j.descriptor) {
		for i, err := range snap.AllIntents(span) {
			if err != nil {
				j.call.Reply(failure(pb.Error_CODE_INTERNAL,
					"tablet %d could not read its store: %v", j.tablet.id, err))
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
	if j.tablet.servedTerm.Load() != j.term {
		j.call.Reply(failure(pb.Error_CODE_NOT_LEADER, "tablet %d lost its leadership",
			j.tablet.id))
		return
	}
	r := j.answer.GetCollect()
	r.Confirmed, r.Unsettled = j.settled, j.unsettled
	j.call.Reply(j.answer)
}
