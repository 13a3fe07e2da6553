package tablet

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Checks of requests before evaluation, and the answers that refuse them. Limits are checked
// here although clients check them too, since a replica must never propose what it cannot
// apply. A check lasts for one request, in the tablet's turn.

// filterServable returns the calls that may still be evaluated, in place. It answers the
// others, such as those whose range was split off while they waited, those past their deadline,
// and all of them if this replica no longer leads.
func (o *proposer) filterServable(calls []*Call) []*Call {
	kept, now := calls[:0], time.Time{}
	for _, call := range calls {
		if reads.AnswerLate(call, &now) {
			continue
		}
		if refusal := o.refusal(wire.OperationOf(call.Req), call.Req); refusal != nil {
			call.Reply(refusal)
			continue
		}
		kept = append(kept, call)
	}
	return kept
}

// refusal returns the answer to an operation that this replica cannot execute, or nil if it
// may be evaluated.
func (o *proposer) refusal(op *wire.Operation, req *pb.TabletRequest) *pb.TabletResponse {
	switch {
	case o.removed():
		return o.wrongTablet("no replica here any more, epoch %d", o.descriptor.Epoch)
	case o.failed != nil:
		return wire.Failure(pb.Error_CODE_UNAVAILABLE, "tablet %d has stopped: %v", o.id, o.failed)
	case !o.leading:
		// A quiescent follower may have missed an election, and asks the others for the leader.
		o.group.SeekLeader()
		return o.notLeader("this node does not lead tablet %d", o.id)
	case req.Epoch != 0 && req.Epoch != o.descriptor.Epoch:
		return o.wrongTablet("epoch %d, not %d", o.descriptor.Epoch, req.Epoch)
	}
	return (&check{tablet: o}).request(op, req)
}

// notLeader returns the answer that this replica does not lead, with the leader's node if it
// is known.
func (o *proposer) notLeader(format string, args ...any) *pb.TabletResponse {
	r := wire.Failure(pb.Error_CODE_NOT_LEADER, format, args...)
	r.Error.LeaderNode = o.group.LeaderNode()
	return r
}

// replyAll sends the same answer to all calls.
func replyAll(calls []*Call, answer *pb.TabletResponse) {
	for _, call := range calls {
		call.Reply(answer)
	}
}

func (o *proposer) removed() bool { return errors.Is(o.failed, errRemoved) }

// wrongTablet returns an answer with the descriptors that correct the sender's map: this
// tablet's, and that of the right side of its last split.
func (s *state) wrongTablet(format string, args ...any) *pb.TabletResponse {
	r := wire.Failure(pb.Error_CODE_WRONG_TABLET, "tablet %d has "+format,
		append([]any{s.descriptor.TabletId}, args...)...)
	r.Error.Descriptors = append(r.Error.Descriptors, s.descriptor)
	if s.sibling != nil {
		r.Error.Descriptors = append(r.Error.Descriptors, s.sibling)
	}
	return r
}

// requestSize estimates the memory of the request's payload in bytes. The port and the batch
// are bounded by it.
func requestSize(req *pb.TabletRequest) int {
	const fixed = 64
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get: // the most frequent, and nothing else is variable
		return fixed * (1 + len(op.Get.GetCells()))
	case *pb.TabletRequest_SetCatalogue:
		return proto.Size(op.SetCatalogue)
	case *pb.TabletRequest_Walk:
		return fixed * (1 + len(op.Walk.GetColumns()))
	}
	s := wire.SubjectOf(req)
	n := fixed * (1 + len(s.Cells) + len(s.Intents))
	for _, c := range s.Named {
		n += fixed + len(c.GetRow()) + len(c.GetColumn())
	}
	for _, w := range s.Writes {
		n += fixed + len(w.GetCell().GetRow()) + len(w.GetCell().GetColumn()) + len(w.GetValue())
	}
	return n
}

// request returns the refusal of a request that is malformed, exceeds a limit, concerns a dropped
// or restoring table, lies outside of the tablet's range, or is not allowed during a merge; nil if
// it may be evaluated.
func (c *check) request(op *wire.Operation, req *pb.TabletRequest) *pb.TabletResponse {
	if op.By == wire.ByNobody {
		return wire.Failure(pb.Error_CODE_INVALID, "unknown operation %T", req.Op)
	}
	if refusal := c.tablet.duringMerge(req); refusal != nil {
		return refusal
	}
	s := wire.SubjectOf(req)
	switch {
	case op.Has(wire.NeedsTable) && dropped(c.tablet.memory.Catalogue, &s):
		return wire.Failure(pb.Error_CODE_NO_TABLE, "the table has been dropped")
	case op.Has(wire.NeedsTable) && restoring(c.tablet.memory.Catalogue, &s) && !restores(req):
		refusal := wire.Failure(pb.Error_CODE_UNAVAILABLE,
			"the table is being restored or loaded: it can be used again when that has ended")
		refusal.Error.Reason = pb.Error_REASON_RESTORING
		return refusal
	case op.Has(wire.InTransaction):
		c.startTS(s.Start)
	}
	if s.HasCell {
		c.cell(s.Cell, !s.Elsewhere)
	}
	c.writes(s.Writes)
	c.cells(s.Cells, "cells", true)
	c.cells(s.Intents, "cells", true)
	if n := len(s.Named) + 1; n > mvcc.MaxAsyncCells {
		c.refuse(pb.Error_CODE_TOO_LARGE, "asynchronous commit of %d cells; at most %d", n, mvcc.MaxAsyncCells)
	}
	c.cells(s.Named, "cells", false) // other tablets may hold them
	switch op := req.Op.(type) {     // checks of single operations
	case *pb.TabletRequest_Scan:
		if at := op.Scan.GetResume(); at != nil { // it may be outside of the range
			c.cell(at, false)
		}
	case *pb.TabletRequest_Walk:
		c.cells(op.Walk.GetColumns(), "columns", false)
	case *pb.TabletRequest_RawWrite:
		for _, k := range op.RawWrite.GetConditions() {
			c.cell(k.GetCell(), true)
		}
	case *pb.TabletRequest_Mark:
		if id := c.tablet.id; id != MetaTabletID {
			c.refuse(pb.Error_CODE_INVALID,
				"the oracle's mark is kept by the meta tablet, not by tablet %d", id)
		}
	case *pb.TabletRequest_Restore:
		deleted := func(w *pb.CellWrite) bool { return w.GetKind() != pb.Kind_KIND_PUT }
		if s.Incomplete || slices.ContainsFunc(s.Writes, deleted) {
			c.refuse(pb.Error_CODE_INVALID,
				"each restored cell must be a put with its start and commit timestamps")
		}
	case *pb.TabletRequest_History:
		c.row(op.History.GetTable(), op.History.GetRow())
	case *pb.TabletRequest_Split:
		c.splitAt(op.Split)
	case *pb.TabletRequest_Merge:
		c.merge(req.Epoch, op.Merge)
	case *pb.TabletRequest_Collect:
		c.collect(op.Collect)
	}
	return c.refused
}

// dropped reports whether the request concerns a dropped table. Most clusters have none,
// which is checked first.
func dropped(c *memory.Catalogue, s *wire.Subject) bool { return c.AnyDropped() && about(s, c.Dropped) }

// restoring reports whether the request concerns a table that is being restored. Usually
// there is none.
func restoring(c *memory.Catalogue, s *wire.Subject) bool {
	return c.AnyRestoring() && about(s, c.Restoring)
}

// restores reports whether a restore itself makes such requests: it writes records, and
// searches for the last existing one.
func restores(req *pb.TabletRequest) bool {
	return req.GetRestore() != nil || req.GetScan().GetRecords()
}

// about reports whether the request concerns a table for which such returns true.
func about(s *wire.Subject, such func(mvcc.TableID) bool) bool {
	cell := func(p *pb.Cell) bool { return such(mvcc.TableID(p.GetTable())) }
	write := func(w *pb.CellWrite) bool { return cell(w.GetCell()) }
	return slices.ContainsFunc(s.Cells, cell) || slices.ContainsFunc(s.Intents, cell) ||
		slices.ContainsFunc(s.Writes, write) ||
		(s.Span != nil && such(mvcc.TableID(s.Span.GetTable())))
}

// check collects the first reason to refuse a request.
type check struct {
	tablet  *proposer
	refused *pb.TabletResponse
	bytes   int
}

func (c *check) refuse(code pb.Error_Code, format string, args ...any) {
	if c.refused == nil {
		c.refused = wire.Failure(code, format, args...)
	}
}

// startTS refuses timestamps that the oracle never assigns to a transaction.
func (c *check) startTS(ts uint64) {
	if ts == 0 || mvcc.Timestamp(ts) == mvcc.MaxTimestamp {
		c.refuse(pb.Error_CODE_INVALID, "timestamp %d cannot be a transaction's", ts)
	}
}

// row refuses a row outside of the tablet's range, with the descriptors that correct the
// sender's map.
func (c *check) row(table uint32, row []byte) {
	at := wire.Position{Table: mvcc.TableID(table), Row: wire.String(row)}
	if c.refused == nil && !wire.Holds(c.tablet.descriptor, at) {
		c.refused = c.tablet.wrongTablet("a range without table %d row %q", table, clip(row))
	}
}

// cell checks an address and, with inRange, that this tablet holds its row.
func (c *check) cell(p *pb.Cell, inRange bool) {
	lim := &c.tablet.cfg.Limits
	switch {
	case p == nil:
		c.refuse(pb.Error_CODE_INVALID, "a cell is missing from the request")
	case p.Class > uint32(mvcc.ClassAck):
		c.refuse(pb.Error_CODE_INVALID, "unknown column class %d", p.Class)
	case len(p.Row) > lim.Row:
		c.refuse(pb.Error_CODE_TOO_LARGE, "row of %d bytes; at most %d", len(p.Row), lim.Row)
	case len(p.Column) > lim.Column:
		c.refuse(pb.Error_CODE_TOO_LARGE, "column of %d bytes; at most %d", len(p.Column), lim.Column)
	case inRange:
		c.row(p.Table, p.Row)
	}
}

// cells checks addresses of cells, or of columns, which have no rows, and their number.
func (c *check) cells(ps []*pb.Cell, what string, inRange bool) {
	if len(ps) > maxOperationCells {
		c.refuse(pb.Error_CODE_TOO_LARGE, "operation on %d %s; at most %d", len(ps), what, maxOperationCells)
		return
	}
	for _, p := range ps {
		c.cell(p, inRange)
	}
}

// writes checks the addresses, kinds and sizes of writes, and their total size.
func (c *check) writes(ws []*pb.CellWrite) {
	lim := &c.tablet.cfg.Limits
	for _, w := range ws {
		c.cell(w.GetCell(), true)
		if k := w.GetKind(); k < pb.Kind_KIND_PUT || k > pb.Kind_KIND_LOCK {
			c.refuse(pb.Error_CODE_INVALID, "unknown kind of write %d", w.GetKind())
		}
		if len(w.GetValue()) > lim.Value {
			c.refuse(pb.Error_CODE_TOO_LARGE, "value of %d bytes; at most %d", len(w.GetValue()), lim.Value)
		}
		c.bytes += len(w.GetCell().GetRow()) + len(w.GetCell().GetColumn()) + len(w.GetValue())
	}
	if c.bytes > lim.Batch {
		c.refuse(pb.Error_CODE_TOO_LARGE, "operation of %d bytes; at most %d", c.bytes, lim.Batch)
	}
	if len(ws) > maxOperationCells {
		c.refuse(pb.Error_CODE_TOO_LARGE, "operation of %d cells; at most %d", len(ws), maxOperationCells)
	}
}

// maxOperationCells limits the cells of one operation, so that its effects (up to five keys a cell)
// fit one batch of the store.
const maxOperationCells = 8 << 10

// clip shortens a key for an error message.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }
