package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// errManyTablets: the transaction does not fit into one tablet and has not been sent anywhere.
var errManyTablets = errors.New("percolator: cells in several tablets")

// Why one phase is enough: the tablet decides all cells in one batch of its log, so there
// is nothing that a crash could leave half done and no primary whose decision others
// would have to look up. It keeps the proof of order (§2.3) by reserving the cells in its
// memory before it asks the oracle for the commit timestamp (invariant 10 of design
// section 4).

// onePhase is what commits in one phase: a whole transaction, or what is left of one whose
// other cells are prewritten (twoPhase.last). The first write is the primary.
type onePhase struct {
	t        *Txn
	writes   []bufferedWrite
	notifies []mvcc.Cell
}

// commit commits cells that are all in one tablet with one message. At most one copy of it
// is ever under way: it is sent again only after an answer that says "surely not done", and
// after no answer it is settled. Once it has been sent it never turns into two phases
// (invariant 4).
func (o *onePhase) commit(ctx context.Context) (mvcc.Timestamp, error) {
	t, c := o.t, o.t.c
	var wait patience
	var msg onePhaseMessage
	for sent, rounds := false, 0; ; {
		// The map is asked again on every round: the answer before may have healed it.
		d, err := c.router.locate(ctx, posOf(o.writes[0].cell))
		if err != nil {
			return 0, err
		}
		if !o.fits(d) {
			// Two phases with this start timestamp could meet a late copy of the
			// one-phase commit, and the two would get different commit timestamps.
			// Another run gets another start timestamp.
			if sent {
				return 0, fmt.Errorf("%w: its tablet was split meanwhile", ErrConflict)
			}
			return 0, errManyTablets
		}
		if !sent {
			if err := t.overtaken(); err != nil {
				return 0, err
			}
		}
		resp, v, err := c.router.try(ctx, d, msg.request(o, !sent))
		sent = true
		switch v {
		case answered:
			ts, again, err := o.result(ctx, resp.GetMutation(), rounds)
			if !again {
				return ts, err
			}
			rounds++
			continue
		case refused, busy:
			return 0, err // surely not done, and no other copy is under way
		case unknown:
			return o.settle(ctx, err)
		}
		if err := wait.again(ctx, &c.cfg, v, err); err != nil {
			return 0, err
		}
	}
}

// result judges an answer; again: a lock was in the way and is gone.
func (o *onePhase) result(ctx context.Context, res *pb.MutationResult,
	rounds int) (ts mvcc.Timestamp, again bool, err error) {
	switch res.GetStatus() {
	case pb.Status_STATUS_OK, pb.Status_STATUS_COMMITTED:
		// Committed: an earlier copy of this very message was faster (invariant 5 of
		// design section 4).
		if res.GetCommitTs() > uint64(o.t.at) {
			o.t.sawLeft(res)
			return mvcc.Timestamp(res.CommitTs), false, nil
		}
	case pb.Status_STATUS_LOCKED:
		err := o.t.c.resolver.clearAway(ctx, wire.Result(res).Locks, rounds)
		return 0, err == nil, err
	}
	if err := refusal(res); err != nil {
		return 0, false, err
	}
	// An answer that makes no sense says nothing about the outcome.
	ts, err = o.settle(ctx, fmt.Errorf("the tablet answered %v", res))
	return ts, false, err
}

// settle settles with the first cell in the part of the primary: the batch is all
// or nothing, so what holds for one of its cells holds for all.
func (o *onePhase) settle(ctx context.Context, cause error) (mvcc.Timestamp, error) {
	ts, err := o.t.c.resolver.settle(ctx, o.writes[0].cell, o.t.at, cause)
	if err == nil && ts == 0 {
		err = errFenced
	}
	return ts, err
}

// fits reports whether all of it goes into one message for d.
func (o *onePhase) fits(d *pb.TabletDescriptor) bool {
	if len(o.writes)+len(o.notifies) > maxBatchCells {
		return false
	}
	size := 0
	for i := range o.writes {
		w := &o.writes[i]
		size += w.cell.OnePhaseWeight(len(w.value), o.t.c.cfg.Limits)
		if i > 0 && !wire.Holds(d, posOf(w.cell)) {
			return false
		}
	}
	for _, cell := range o.notifies {
		size += cell.NotifyWeight()
		if !wire.Holds(d, posOf(cell)) {
			return false
		}
	}
	// A single write within the limits always goes into a message.
	return len(o.writes)+len(o.notifies) == 1 || size <= o.t.c.router.batchBytes()
}

// onePhaseMessage is a message and, in the same allocation, all of it if it has one cell.
// Most transactions of an incremental system are this small, and their messages are most
// of what a client allocates.
type onePhaseMessage struct{ body *onePhaseBody }

type onePhaseBody struct {
	req   pb.TabletRequest
	op    pb.TabletRequest_OnePhase
	one   pb.OnePhaseRequest
	write pb.CellWrite
	cell  pb.Cell
	list  [1]*pb.CellWrite
}

// request builds the message; first is false if an earlier one with the same content has been sent.
func (m *onePhaseMessage) request(o *onePhase, first bool) *pb.TabletRequest {
	if !first {
		return fresh(&m.body.req)
	}
	b := &onePhaseBody{}
	m.body = b
	b.one.StartTs, b.one.Origin = uint64(o.t.at), uint64(o.t.origin)
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

// writesPB converts buffered writes with one allocation for each kind of message.
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
