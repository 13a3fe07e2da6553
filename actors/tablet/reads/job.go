package reads

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// job is a part of a read batch, with the view that answers it.
type job struct {
	shared *Shared
	term   uint64
	epoch  uint64
	view   memory.ReadView
	calls  []*Call
}

// Run answers the calls. The order matters (design section 5): the term first, to avoid useless
// reads; then the Txn, which is newer than the capture; then the epoch in the Txn, and the
// safepoint as known by then; and finally, before each answer from the Txn, the term again.
func (j *job) Run() {
	defer j.shared.finished()
	if j.shared.term.Load() != j.term {
		j.refuse(j.lostLeadership())
		return
	}
	snap := j.openSnap()
	defer snap.Close()
	if refusal := j.check(snap); refusal != nil {
		j.refuse(refusal)
		return
	}
	j.view.Open(snap, mvcc.Timestamp(j.shared.safepoint.Load()))
	var blocked []BlockedRead
	now := time.Now()
	for _, call := range j.calls {
		if AnswerLate(call, &now) {
			continue
		}
		call.Span.Event("worker")
		j.view.Begin(call.Req)
		snap.Ascend(len(call.Req.GetGet().GetCells()))
		response, met, err := j.evaluate(call)
		switch {
		case err != nil:
			call.Reply(j.failed(call.Req, err))
		// The read encountered a reservation; the tablet knows whether the reservation still
		// exists.
		case met != nil:
			blocked = append(blocked, BlockedRead{call, met})
		case j.shared.term.Load() != j.term:
			call.Reply(j.lostLeadership())
		default:
			call.Reply(wire.Capped(call.Req, response))
		}
	}
	j.shared.Took.Since(now)
	if len(blocked) > 0 {
		j.shared.Send(&Blocked{Reads: blocked})
	}
}

func (j *job) refuse(answer *pb.TabletResponse) {
	for _, call := range j.calls {
		call.Reply(answer)
	}
}

// openSnap opens the Snap for answering the calls. Only a request for a cell's history reads locks
// from the store; all others read them from the captured view.
func (j *job) openSnap() *store.Snap {
	if slices.ContainsFunc(j.calls, func(c *Call) bool { return c.Req.GetHistory() != nil }) {
		return j.shared.Store.SnapWithLocks()
	}
	return j.shared.Store.Snap()
}

func (j *job) lostLeadership() *pb.TabletResponse {
	return wire.Failure(pb.Error_CODE_NOT_LEADER, "tablet %d lost its leadership", j.shared.Tablet)
}

// failed returns the answer to a read that could not be evaluated.
func (j *job) failed(req *pb.TabletRequest, err error) *pb.TabletResponse {
	if noRoom, ok := errors.AsType[*memory.NoRoomError](err); ok {
		return wire.NoRoom(req, noRoom.Needs+j.beside(req))
	}
	if r := evaluate.Refusal(err); r != nil {
		return r
	}
	if errors.Is(err, errPanicked) {
		return wire.Failure(pb.Error_CODE_INTERNAL, "tablet %d: %v", j.shared.Tablet, err)
	}
	return j.unread(err)
}

// errPanicked reports a panic of a read's evaluation, which is logged with its stack.
var errPanicked = errors.New("the evaluation of the read panicked")

// unread returns the answer to a read that failed in the store. If the store has failed
// permanently, the replica stops, so that another replica can serve.
func (j *job) unread(err error) *pb.TabletResponse {
	code := pb.Error_CODE_INTERNAL
	if errors.Is(err, store.ErrFailed) {
		code = pb.Error_CODE_UNAVAILABLE
		j.shared.Send(&StoreFailed{Err: err})
	}
	return wire.Failure(code, "tablet %d could not read its store: %v", j.shared.Tablet, err)
}

// StoreFailed reports to a tablet that its store can no longer be read.
type StoreFailed struct{ Err error }

// Blocked returns to a tablet those of its reads that encountered a reservation which was held when
// their view was captured.
type Blocked struct{ Reads []BlockedRead }

// BlockedRead is a read, and the lock of the reservation that it encountered.
type BlockedRead struct {
	Call *Call
	Met  *mvcc.Lock
}

// Dead implements actorkit.Leftover.
func (m *Blocked) Dead() {
	for _, r := range m.Reads {
		r.Call.Dead()
	}
}

// beside returns the bytes that a retry of the read must allow in addition to the long values
// counted so far (NoRoomError.Needs): for the rest of the answer and, except for a Get of one cell,
// for values not counted yet as much as this request allows. So each retry has at least twice the
// space of the one before, up to the limit of one answer.
func (j *job) beside(req *pb.TabletRequest) int {
	cells := len(req.GetGet().GetCells())
	n := cells*wire.ResultMemory + wire.AnswerOverhead
	if cells != 1 {
		n += min(int(req.MaxAnswerBytes), j.shared.Limits.Batch)
	}
	return n
}

// evaluate evaluates one read. A panic fails only that read.
func (j *job) evaluate(call *Call) (r *pb.TabletResponse, met *mvcc.Lock, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.shared.Logger.Error("a read panicked", "tablet", j.shared.Tablet, "panic", p, "stack",
				string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	r, met, err = evaluate.Read(&j.view, call.Req, readAt(call))
	j.shared.Traces.Tell(r.GetWalk())
	j.shared.Feed.note(r.GetChanges(), mvcc.Timestamp(call.Note))
	return r, met, err
}

// readAt returns the timestamp of a Get or a request for changes: its own, or the one requested for
// it. The timestamp stays the same when the read waits for a reservation and is retried: otherwise
// each new reservation of a busy cell would block the read.
func readAt(call *Call) mvcc.Timestamp {
	return mvcc.Timestamp(cmp.Or(call.Req.GetGet().GetAt(), call.Note))
}

// check compares the epoch in the snap with that of the capture: a split in between has moved
// part of the range to a tablet whose locks are not in the captured view. A change of replicas or
// a step of a merge raises the epoch too, and then only costs a retry.
func (j *job) check(snap *store.Snap) *pb.TabletResponse {
	a, ok, err := snap.Applied(j.shared.Tablet)
	switch {
	case err != nil:
		return j.unread(err)
	case !ok:
		return wire.Failure(pb.Error_CODE_INTERNAL, "tablet %d has no state in its store", j.shared.Tablet)
	case a.Epoch != j.epoch:
		return wire.Failure(pb.Error_CODE_NOT_PROPOSED,
			"tablet %d was split, merged or moved during the read; try again", j.shared.Tablet)
	}
	return nil
}
