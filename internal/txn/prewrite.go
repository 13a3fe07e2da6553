package txn

import (
	"cmp"
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/counters"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// prewritePart is the part of a transaction in one prewrite message to its tablet by the
// cached map.
type prewritePart struct {
	d       *pb.TabletDescriptor
	writes  []bufferedWrite
	intents []mvcc.Cell
	// sent reports, for asynchronous commits only, that a copy of the prewrite of these cells may
	// have been delivered, and may still be accepted.
	sent bool
}

// prewriteAll locks cells and leaves intents (Figure 6 line 48), in all tablets in parallel.
func (p *twoPhase) prewriteAll(ctx context.Context, writes []bufferedWrite,
	intents []mvcc.Cell) (err error) {
	began, span := time.Now(), p.t.span.Child(spanPrewrite)
	defer func() {
		endSpan(span, err)
		p.c.stats.StepSince(counters.StepPrewrite, began)
	}()
	// The primary is not locked first: a reader that encounters a secondary whose primary has
	// not arrived yet waits until that lock expires (design section 4, "A missing primary is not a
	// rollback"), so an extra round trip would gain nothing.
	parts, err := p.parts(ctx, writes, intents)
	if err != nil {
		return err
	}
	return request.Parallel(len(parts), func(i int) error {
		var wait request.Retry
		return p.prewrite(ctx, parts[i], &wait)
	})
}

// parts groups writes and notifications by tablet into parts within the batch limit.
func (p *twoPhase) parts(
	ctx context.Context, writes []bufferedWrite, notifies []mvcc.Cell,
) (parts []prewritePart, err error) {
	err = request.Cut(ctx, p.c.router, writes, func(w bufferedWrite) (mvcc.Cell, int) {
		return w.cell, w.cell.PrewriteWeight(len(w.value), p.primary)
	}, func(d *pb.TabletDescriptor, run []bufferedWrite, _ int) {
		parts = append(parts, prewritePart{d: d, writes: run})
	})
	if err != nil {
		return nil, err
	}
	err = request.Cut(ctx, p.c.router, notifies, func(c mvcc.Cell) (mvcc.Cell, int) {
		return c, c.IntentWeight(p.primary)
	}, func(d *pb.TabletDescriptor, run []mvcc.Cell, _ int) {
		parts = append(parts, prewritePart{d: d, intents: run})
	})
	return parts, err
}

// prewrite locks one part. Prewriting is idempotent, so it is repeated after a lost reply. It
// waits only for the tablet: a live lock of another transaction makes it fail, since the
// transaction already holds locks.
func (p *twoPhase) prewrite(ctx context.Context, part prewritePart, wait *request.Retry) error {
	req := p.prewriteRequest(part)
	for rounds := 0; ; rounds++ {
		resp, v, err := p.c.router.Try(ctx, part.d, req)
		if p.async != nil {
			p.async.tried(&part, v, err)
		}
		switch v {
		case request.Answered:
			again, err := p.prewriteResult(ctx, resp.GetMutation(), rounds)
			if !again {
				return err
			}
			req = request.Fresh(req)
			continue
		case request.Refused, request.Busy:
			return err
		case request.Unknown:
			p.held.Store(true) // from here on a failed commit must roll back
		}
		if err := wait.Again(ctx, p.c.cfg.OperationTimeout, v, err); err != nil {
			return err
		}
		parts, err := p.parts(ctx, part.writes, part.intents)
		if err != nil {
			return err
		}
		return request.Parallel(len(parts), func(i int) error {
			own := *wait
			parts[i].sent = part.sent
			return p.prewrite(ctx, parts[i], &own)
		})
	}
}

// prewriteResult interprets an answer. again reports that a conflicting lock has been
// resolved.
func (p *twoPhase) prewriteResult(ctx context.Context, res *pb.MutationResult,
	rounds int) (again bool, err error) {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED:
		// Set also after "committed": this copy of the message has found the outcome of an earlier
		// copy.
		p.held.Store(true)
		if p.async != nil {
			return false, p.async.note(res)
		}
		return false, nil
	case pb.Status_STATUS_LOCKED:
		err := p.c.resolver.clearAway(ctx, wire.Result(res).Locks, rounds)
		return err == nil, err
	}
	return false, cmp.Or(refusal(res), Errorf("%w: unexpected response to a prewrite: %v", ErrUnavailable, res))
}

// prewriteRequest builds the message. The locks expire LockTTL from now by oracle time,
// and name this process.
func (p *twoPhase) prewriteRequest(part prewritePart) *pb.TabletRequest {
	body := &pb.PrewriteRequest{
		StartTs: uint64(p.startTS), Primary: wire.CellPB(p.primary),
		Expiry: uint64(p.c.oracle.Expiry()),
		Worker: wire.WorkerPB(p.c.worker), Writes: writesPB(part.writes),
		Intents: wire.CellsPB(part.intents), Origin: uint64(p.t.origin),
	}
	if p.async != nil {
		body.Async, body.Spare = true, p.blind
		if part.writes[0].cell == p.primary { // the primary is the transaction's first write
			cells, _, _ := p.cells()
			body.Secondaries = wire.CellsPB(cells[1:])
		}
	}
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_Prewrite{Prewrite: body}, Trace: p.t.span.Sent(),
	}
}
