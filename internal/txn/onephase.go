package txn

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// errManyTablets means that the cells are in several tablets, or too many or too long for one message,
// and that nothing was sent. Callers commit in two phases instead.
var errManyTablets = NewError("cells in several tablets")

// Why one phase suffices: the tablet commits all cells in one entry of its log, so a crash
// cannot leave a partial commit and there are no locks to resolve by a primary. The tablet
// preserves the proof of order (§2.3) by reserving the cells in memory before it requests the
// commit timestamp from the oracle (design section 4, "Order").

// onePhase is a one-phase commit: of a whole transaction, or of the last part of one whose
// other cells are prewritten (twoPhase.last). The first write is the primary.
type onePhase struct {
	t        *Txn
	writes   []bufferedWrite
	notifies []mvcc.Cell
	commitStart
}

// commit commits cells that fit into one message to one tablet; otherwise it returns
// errManyTablets.
func (o *onePhase) commit(ctx context.Context) (mvcc.Timestamp, error) {
	ts, err := o.send(ctx)
	if o.spare && surelyRefused(err) {
		if err = o.restart(ctx, o.t); err != nil {
			return 0, err
		}
		ts, err = o.send(ctx)
	}
	if open, ok := errors.AsType[*undecided](err); ok {
		// The batch is atomic: the outcome of its first cell is the outcome of all.
		return o.t.c.resolver.settle(ctx, o.writes[0].cell, o.at, open)
	}
	if err != nil {
		return 0, err
	}
	return ts, nil
}

// send sends the cells in one message, and repeats it while the answers say "not done". Such
// an answer is about one copy: another copy may arrive later, and commit once the lock or
// leader that stopped the first has changed. So if send stops retrying after such an answer it
// returns undecided, which the caller must settle; other errors are final. Once sent, the
// message never turns into two phases.
func (o *onePhase) send(ctx context.Context) (mvcc.Timestamp, error) {
	c := o.t.c
	var wait request.Retry
	var msg onePhaseMessage
	sent, open := false, false // a copy may have been delivered; a copy may still commit
	giveUp := func(err error) (mvcc.Timestamp, error) {
		if open {
			err = givenUp(err)
		}
		return 0, err
	}
	for rounds := 0; ; {
		// Locate again in every round: the previous answer may have corrected the map.
		d, err := c.router.Locate(ctx, request.PosOf(o.writes[0].cell))
		if err == nil {
			err = o.sendable(d, sent)
		}
		if err == nil {
			err = o.begin(ctx, o.t)
		}
		if err != nil {
			return giveUp(err)
		}
		resp, v, err := c.router.Try(ctx, d, msg.request(o))
		sent = sent || !errors.Is(err, ErrNotSent)
		switch v {
		case request.Answered:
			ts, again, err := o.result(ctx, resp.GetMutation(), rounds, open)
			if !again {
				return ts, err
			}
			rounds++
			open = true
			continue
		case request.Unknown:
			return 0, lost(err)
		case request.Refused: // final: only an earlier copy may have been applied
			return giveUp(err)
		}
		// A tablet that is low on disk space refuses every copy until it has space. Settling
		// each refusal would write into the reserve that it needs to free space.
		open = open || !errors.Is(err, ErrNotSent) && !errors.Is(err, ErrDiskFull)
		if v != request.Busy {
			err = wait.Again(ctx, c.cfg.OperationTimeout, v, err)
		}
		if err != nil {
			return giveUp(err)
		}
	}
}

// sendable returns an error if the message must not be sent to d. Before the message was first
// sent, it is errManyTablets if the commit does not fit, and errLateWrite if a write was dropped.
func (o *onePhase) sendable(d *pb.TabletDescriptor, sent bool) error {
	switch fits := o.fits(d); {
	case fits && sent:
		return nil
	case fits:
		return o.t.overtaken()
	case sent:
		// Two phases with this start timestamp could meet a late copy of the one-phase
		// commit, and the two would get different commit timestamps. Another run gets
		// another start timestamp.
		return Errorf("%w: this transaction no longer fits into one message to one tablet, as after a split",
			ErrConflict)
	}
	return errManyTablets
}

// result interprets an answer. again reports that a conflicting lock has been resolved. open
// means that an earlier copy may have committed.
func (o *onePhase) result(ctx context.Context, res *pb.MutationResult, rounds int,
	open bool) (ts mvcc.Timestamp, again bool, err error) {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED:
		// Committed: an earlier copy of this very message was faster (design section 4,
		// "Idempotence").
		if res.GetCommitTs() > uint64(o.at) {
			o.t.sawLeft(res)
			o.t.c.spares.Put(mvcc.Timestamp(res.SpareTs), time.Now())
			return mvcc.Timestamp(res.CommitTs), false, nil
		}
	case pb.Status_STATUS_LOCKED:
		err := o.t.c.resolver.clearAway(ctx, wire.Result(res).Locks, rounds)
		if err == nil {
			return 0, true, nil
		}
		return 0, false, givenUp(err)
	case pb.Status_STATUS_NOTIFY_ONLY: // the tablet checks this before the transaction's own record
		if open {
			return 0, false, givenUp(request.NotifyOnly(res))
		}
	}
	if err := refusal(res); err != nil {
		return 0, false, err
	}
	// After an unexpected answer the outcome is unknown.
	return 0, false, lost(Errorf("unexpected response to a one-phase commit: %v", res))
}

// fits reports whether the commit fits into one message to d.
func (o *onePhase) fits(d *pb.TabletDescriptor) bool {
	if len(o.writes)+len(o.notifies) > request.MaxBatchCells {
		return false
	}
	size := 0
	for i := range o.writes {
		w := &o.writes[i]
		size += w.cell.OnePhaseWeight(len(w.value), o.t.c.cfg.Limits)
		if i > 0 && !wire.Holds(d, request.PosOf(w.cell)) {
			return false
		}
	}
	for _, cell := range o.notifies {
		size += cell.NotifyWeight()
		if !wire.Holds(d, request.PosOf(cell)) {
			return false
		}
	}
	// A single write within the limits always fits.
	return len(o.writes)+len(o.notifies) == 1 || size <= o.t.c.router.BatchBytes()
}

// onePhaseMessage is a message that needs a single allocation if it has one cell. Most
// transactions of an incremental system are this small, and their messages dominate a client's
// allocations.
type onePhaseMessage struct{ body *onePhaseBody }

type onePhaseBody struct {
	req   pb.TabletRequest
	op    pb.TabletRequest_OnePhase
	one   pb.OnePhaseRequest
	write pb.CellWrite
	cell  pb.Cell
	list  [1]*pb.CellWrite
}

// request builds a new message with the same content each time, since the previous one may
// have been sent.
func (m *onePhaseMessage) request(o *onePhase) *pb.TabletRequest {
	if m.body != nil {
		return request.Fresh(&m.body.req)
	}
	b := &onePhaseBody{}
	m.body = b
	b.one.StartTs, b.one.Origin = uint64(o.at), uint64(o.t.origin)
	b.one.Spare = o.blind
	if len(o.writes) == 1 {
		w := &o.writes[0]
		fillCell(&b.cell, w.cell)
		b.write.Cell, b.write.Kind, b.write.Value = &b.cell, pb.Kind(w.kind), w.value
		b.list[0] = &b.write
		b.one.Writes = b.list[:]
	} else {
		b.one.Writes = writesPB(o.writes)
	}
	b.one.Notifies = wire.CellsPB(o.notifies)
	b.one.Clear = slices.ContainsFunc(o.writes, func(w bufferedWrite) bool {
		return w.cell.IsAck()
	})
	b.op.OnePhase = &b.one
	b.req.Op, b.req.Trace = &b.op, o.t.span.Sent()
	return &b.req
}

// writesPB converts buffered writes with two allocations, however many there are.
func writesPB(in []bufferedWrite) []*pb.CellWrite {
	out := make([]*pb.CellWrite, len(in))
	block := make([]struct {
		write pb.CellWrite
		cell  pb.Cell
	}, len(in))
	for i := range in {
		b, w := &block[i], &in[i]
		fillCell(&b.cell, w.cell)
		b.write.Cell, b.write.Kind, b.write.Value = &b.cell, pb.Kind(w.kind), w.value
		out[i] = &b.write
	}
	return out
}
