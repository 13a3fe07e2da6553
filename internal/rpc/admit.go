package rpc

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// admission checks what a remote client may do: read everything, change the users'
// columns of user tables by transactions, and nothing that belongs to the nodes
// themselves. It also makes sure that no message inside is missing, so that nobody behind
// has to.
type admission struct {
	incomplete bool   // something is missing
	forbidden  string // why it is for nodes only; empty if it is not
	highest    uint32 // the greatest table id of a cell or span
}

// Reasons to refuse a request.
const (
	forNodes = "this operation is for nodes only"
	ofMeta   = "this operation is for nodes only: the table is the cluster's own"
	ofAcks   = "acknowledgments are written by observers' runs only"
	notRaw   = "raw cells are the nodes' own, and no scan would show them: write in a transaction"
)

// admit returns why the request is refused, nil if it is not, and the greatest id of a
// table that it is about.
func admit(req *pb.TabletRequest) (table uint32, refusal *pb.Error) {
	var a admission
	a.request(req)
	switch {
	case a.incomplete:
		return 0, &pb.Error{Code: pb.Error_CODE_INVALID, Message: "the request is incomplete"}
	case a.forbidden != "":
		return 0, &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: a.forbidden}
	}
	return a.highest, nil
}

// request looks at every message inside; a missing one is nil or empty after decoding,
// which can't be told apart.
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
		a.settle(op.Rollback.GetCells()...)
		a.settle(op.Rollback.GetIntents()...)
	case *pb.TabletRequest_CheckTxnStatus:
		a.settle(op.CheckTxnStatus.GetPrimary())
	case *pb.TabletRequest_ResolveLock:
		a.resolve(op.ResolveLock)
	case *pb.TabletRequest_Heartbeat:
		a.change(op.Heartbeat.GetPrimary())
	case *pb.TabletRequest_Notify:
		a.need(len(op.Notify.GetCells()) > 0)
		a.change(op.Notify.GetCells()...)
	case *pb.TabletRequest_RawWrite:
		a.forbid(notRaw)
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
		a.forbid(forNodes)
	}
}

// resolve admits carrying a transaction's decision to a lock. Whoever says "committed" of
// an acknowledgment's lock is believed by the tablet, so it is left to the nodes, whose
// sweepers do it by themselves.
func (a *admission) resolve(r *pb.ResolveLockRequest) {
	a.need(len(r.GetCells())+len(r.GetIntents()) > 0)
	if r.GetCommitTs() == 0 {
		a.settle(r.GetCells()...)
	} else {
		a.change(r.GetCells()...)
	}
	a.settle(r.GetIntents()...)
}

// forbid keeps the first reason to refuse the request.
func (a *admission) forbid(why string) {
	if a.forbidden == "" {
		a.forbidden = why
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

// settle admits ending what others have begun in cells of user tables: whoever meets a
// lock may ask its primary, which may be an acknowledgment, and roll it back there.
// Meta's own records decide who owns what: a client that could write them could take the
// cluster apart.
func (a *admission) settle(cells ...*pb.Cell) {
	for _, c := range cells {
		a.need(c != nil)
		a.highest = max(a.highest, c.GetTable())
		if mvcc.TableID(c.GetTable()) < mvcc.FirstUserTable {
			a.forbid(ofMeta)
		}
	}
}

// change admits changing users' columns. An acknowledgment says that an observer has seen
// a change: one that a client had written would keep the change from ever being seen
// (invariant 12 of design section 4).
func (a *admission) change(cells ...*pb.Cell) {
	a.settle(cells...)
	for _, c := range cells {
		if c.GetClass() != uint32(mvcc.ClassData) && !broken.ForgedAcks {
			a.forbid(ofAcks)
		}
	}
}

// write is change for the cells of writes.
func (a *admission) write(writes []*pb.CellWrite) {
	for _, w := range writes {
		a.change(w.GetCell())
	}
}
