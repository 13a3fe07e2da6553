package rpc

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// admission checks what a remote client may do: read everything, change user tables, and nothing that belongs to the
// nodes themselves. It also makes sure that no message inside is missing, so that nobody behind has to.
type admission struct {
	incomplete bool   // something is missing
	forbidden  bool   // for nodes only
	highest    uint32 // the greatest table id of a cell or span
}

// admit returns why the request is refused, nil if it is not, and the greatest id of a table that it is about.
func admit(req *pb.TabletRequest) (table uint32, refusal *pb.Error) {
	var a admission
	a.request(req)
	switch {
	case a.incomplete:
		return 0, &pb.Error{Code: pb.Error_CODE_INVALID, Message: "the request is incomplete"}
	case a.forbidden:
		return 0, &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: "this operation is for nodes only"}
	}
	return a.highest, nil
}

// request looks at every message inside; a missing one is nil or empty after decoding, which can't be told apart.
func (a *admission) request(req *pb.TabletRequest) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		a.read(op.Get.GetCells())
	case *pb.TabletRequest_Scan:
		a.span(op.Scan.GetSpan())
		// The message has just been decoded, so it is still ours to change.
		if op.Scan != nil && (op.Scan.MaxBytes == 0 || op.Scan.MaxBytes > maxGetBytes) {
			op.Scan.MaxBytes = maxGetBytes
		}
	case *pb.TabletRequest_Prewrite:
		a.need(len(op.Prewrite.GetWrites())+len(op.Prewrite.GetIntents()) > 0)
		a.change(op.Prewrite.GetPrimary())
		a.write(op.Prewrite.GetWrites())
		a.change(op.Prewrite.GetIntents()...)
	case *pb.TabletRequest_Commit:
		a.need(len(op.Commit.GetCells())+len(op.Commit.GetIntents()) > 0)
		a.change(op.Commit.GetCells()...)
		a.change(op.Commit.GetIntents()...)
	case *pb.TabletRequest_OnePhase:
		a.need(len(op.OnePhase.GetWrites()) > 0)
		a.write(op.OnePhase.GetWrites())
		a.change(op.OnePhase.GetNotifies()...)
	default:
		a.more(req)
	}
}

// more is the second half of request.
func (a *admission) more(req *pb.TabletRequest) {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Rollback:
		a.need(len(op.Rollback.GetCells())+len(op.Rollback.GetIntents()) > 0)
		a.change(op.Rollback.GetCells()...)
		a.change(op.Rollback.GetIntents()...)
	case *pb.TabletRequest_CheckTxnStatus:
		a.change(op.CheckTxnStatus.GetPrimary())
	case *pb.TabletRequest_ResolveLock:
		a.need(len(op.ResolveLock.GetCells())+len(op.ResolveLock.GetIntents()) > 0)
		a.change(op.ResolveLock.GetCells()...)
		a.change(op.ResolveLock.GetIntents()...)
	case *pb.TabletRequest_Heartbeat:
		a.change(op.Heartbeat.GetPrimary())
	case *pb.TabletRequest_Notify:
		a.need(len(op.Notify.GetCells()) > 0)
		a.change(op.Notify.GetCells()...)
	case *pb.TabletRequest_RawWrite:
		a.need(len(op.RawWrite.GetWrites()) > 0)
		for _, c := range op.RawWrite.GetConditions() {
			a.change(c.GetCell())
		}
		a.write(op.RawWrite.GetWrites())
	case *pb.TabletRequest_RawGet:
		a.read(op.RawGet.GetCells())
	case *pb.TabletRequest_RawScan:
		a.span(op.RawScan.GetSpan())
	case *pb.TabletRequest_Walk:
		a.need(op.Walk != nil)
	case *pb.TabletRequest_History:
		a.need(op.History != nil)
	case *pb.TabletRequest_Pending, *pb.TabletRequest_Status:
	case nil:
		a.need(false)
	default: // split, catalogue, the oracle's mark, an observer's own bookkeeping
		a.forbidden = true
	}
}

// need marks the request incomplete unless ok.
func (a *admission) need(ok bool) { a.incomplete = a.incomplete || !ok }

// read admits reading any cell, meta's too: clients find tables there.
func (a *admission) read(cells []*pb.Cell) {
	a.need(len(cells) > 0)
	for _, c := range cells {
		a.need(c != nil)
		a.highest = max(a.highest, c.GetTable())
	}
}

// span admits reading any table.
func (a *admission) span(s *pb.Span) {
	a.need(s != nil)
	a.highest = max(a.highest, s.GetTable())
}

// change admits changing cells of user tables. Meta's own records decide who owns what: a client that could write them
// could take the cluster apart.
func (a *admission) change(cells ...*pb.Cell) {
	for _, c := range cells {
		a.need(c != nil)
		a.highest = max(a.highest, c.GetTable())
		a.forbidden = a.forbidden || mvcc.TableID(c.GetTable()) < mvcc.FirstUserTable
	}
}

// write is change for the cells of writes.
func (a *admission) write(writes []*pb.CellWrite) {
	for _, w := range writes {
		a.change(w.GetCell())
	}
}
