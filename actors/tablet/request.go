package tablet

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

func failure(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// wrongTablet answers with the descriptors that heal the sender's map.
func (t *Tablet) wrongTablet(format string, args ...any) *pb.TabletResponse {
	r := failure(pb.Error_CODE_WRONG_TABLET, "tablet %d has "+format, append([]any{t.id}, args...)...)
	r.Error.Descriptors = append(r.Error.Descriptors, t.descriptor)
	if t.sibling != nil {
		r.Error.Descriptors = append(r.Error.Descriptors, t.sibling)
	}
	return r
}

func isRead(req *pb.TabletRequest) bool {
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get, *pb.TabletRequest_Scan, *pb.TabletRequest_RawGet, *pb.TabletRequest_RawScan,
		*pb.TabletRequest_Walk, *pb.TabletRequest_History, *pb.TabletRequest_Pending:
		return true
	case *pb.TabletRequest_Mark:
		return op.Mark.GetRaiseTo() == 0
	}
	return false
}

// requestSize is about the memory that the request's payload holds.
func requestSize(req *pb.TabletRequest) int {
	const fixed = 64
	writes := func(ws []*pb.CellWrite) int {
		n := fixed
		for _, w := range ws {
			n += fixed + len(w.GetCell().GetRow()) + len(w.GetCell().GetColumn()) + len(w.GetValue())
		}
		return n
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Prewrite:
		return writes(op.Prewrite.GetWrites()) + fixed*len(op.Prewrite.GetIntents())
	case *pb.TabletRequest_OnePhase:
		return writes(op.OnePhase.GetWrites()) + fixed*len(op.OnePhase.GetNotifies())
	case *pb.TabletRequest_RawWrite:
		return writes(op.RawWrite.GetWrites())
	case *pb.TabletRequest_SetCatalogue:
		return proto.Size(op.SetCatalogue)
	}
	return fixed
}

// checkRequest is invariant "limits are checked again at the tablet" and "a row lives in
// one tablet": nil if all is well.
func (t *Tablet) checkRequest(req *pb.TabletRequest) *pb.TabletResponse {
	c := check{tablet: t}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		c.cells(op.Get.GetCells())
	case *pb.TabletRequest_Scan:
		c.resume(op.Scan.GetResume())
	case *pb.TabletRequest_Prewrite:
		c.startTS(op.Prewrite.GetStartTs())
		c.cell(op.Prewrite.GetPrimary(), false)
		c.writes(op.Prewrite.GetWrites())
		c.cells(op.Prewrite.GetIntents())
	case *pb.TabletRequest_Commit:
		c.startTS(op.Commit.GetStartTs())
		c.cells(op.Commit.GetCells())
		c.cells(op.Commit.GetIntents())
	case *pb.TabletRequest_OnePhase:
		c.startTS(op.OnePhase.GetStartTs())
		c.writes(op.OnePhase.GetWrites())
		c.cells(op.OnePhase.GetNotifies())
	case *pb.TabletRequest_Rollback:
		c.startTS(op.Rollback.GetStartTs())
		c.cells(op.Rollback.GetCells())
		c.cells(op.Rollback.GetIntents())
	case *pb.TabletRequest_CheckTxnStatus:
		c.startTS(op.CheckTxnStatus.GetStartTs())
		c.cell(op.CheckTxnStatus.GetPrimary(), true)
	case *pb.TabletRequest_ResolveLock:
		c.startTS(op.ResolveLock.GetStartTs())
		c.cells(op.ResolveLock.GetCells())
		c.cells(op.ResolveLock.GetIntents())
	case *pb.TabletRequest_Heartbeat:
		c.startTS(op.Heartbeat.GetStartTs())
		c.cell(op.Heartbeat.GetPrimary(), true)
	case *pb.TabletRequest_Notify:
		c.startTS(op.Notify.GetTs())
		c.cells(op.Notify.GetCells())
	case *pb.TabletRequest_ClearNotify:
		c.cell(op.ClearNotify.GetCell(), true)
	case *pb.TabletRequest_FailNotify:
		c.cell(op.FailNotify.GetCell(), true)
	case *pb.TabletRequest_RawWrite:
		c.writes(op.RawWrite.GetWrites())
		for _, k := range op.RawWrite.GetConditions() {
			c.cell(k.GetCell(), true)
		}
	case *pb.TabletRequest_RawGet:
		c.cells(op.RawGet.GetCells())
	case *pb.TabletRequest_Mark:
		if t.id != MetaTabletID {
			c.refuse(failure(pb.Error_CODE_INVALID, "the oracle's mark is kept by the meta tablet, not by tablet %d", t.id))
		}
	case *pb.TabletRequest_History:
		c.row(op.History.GetTable(), op.History.GetRow())
		c.cells(op.History.GetCells())
	case *pb.TabletRequest_Split:
		c.splitAt(op.Split)
	case *pb.TabletRequest_Collect:
		c.collect(op.Collect)
	case *pb.TabletRequest_RawScan, *pb.TabletRequest_Walk, *pb.TabletRequest_Pending, *pb.TabletRequest_SetCatalogue,
		*pb.TabletRequest_ChangeReplicas, *pb.TabletRequest_TransferLeader, *pb.TabletRequest_Checksum:
	default:
		return failure(pb.Error_CODE_INVALID, "unknown operation %T", req.Op)
	}
	return c.refused
}

// dropped reports whether the request wants to read or write a dropped table. Its tablets
// go on answering what ends transactions (design section 2).
func (t *Tablet) dropped(req *pb.TabletRequest) bool {
	if len(t.catalogue.dropped) == 0 && len(t.catalogue.message.GetGone()) == 0 {
		return false
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		return t.droppedCells(op.Get.GetCells())
	case *pb.TabletRequest_Scan:
		return t.catalogue.isDropped(mvcc.TableID(op.Scan.GetSpan().GetTable()))
	case *pb.TabletRequest_Prewrite:
		return t.droppedWrites(op.Prewrite.GetWrites()) || t.droppedCells(op.Prewrite.GetIntents())
	case *pb.TabletRequest_OnePhase:
		return t.droppedWrites(op.OnePhase.GetWrites()) || t.droppedCells(op.OnePhase.GetNotifies())
	case *pb.TabletRequest_Notify:
		return t.droppedCells(op.Notify.GetCells())
	}
	return false
}

func (t *Tablet) droppedCells(cells []*pb.Cell) bool {
	return slices.ContainsFunc(cells, func(c *pb.Cell) bool { return t.catalogue.isDropped(mvcc.TableID(c.GetTable())) })
}

func (t *Tablet) droppedWrites(writes []*pb.CellWrite) bool {
	return slices.ContainsFunc(writes, func(w *pb.CellWrite) bool { return t.catalogue.isDropped(mvcc.TableID(w.GetCell().GetTable())) })
}

// check collects the first reason to refuse a request.
type check struct {
	tablet  *Tablet
	refused *pb.TabletResponse
	bytes   int
}

func (c *check) refuse(r *pb.TabletResponse) {
	if c.refused == nil {
		c.refused = r
	}
}

func (c *check) startTS(ts uint64) {
	if ts == 0 || mvcc.Timestamp(ts) == mvcc.MaxTimestamp {
		c.refuse(failure(pb.Error_CODE_INVALID, "timestamp %d cannot be a transaction's", ts))
	}
}

func (c *check) row(table uint32, row []byte) {
	if !wire.Holds(c.tablet.descriptor, wire.Position{Table: mvcc.TableID(table), Row: wire.String(row)}) {
		c.refuse(c.tablet.wrongTablet("a range without table %d row %q", table, clip(row)))
	}
}

// cell checks an address; inRange also that this tablet holds it.
func (c *check) cell(p *pb.Cell, inRange bool) {
	lim := c.tablet.cfg.Limits
	switch {
	case p == nil:
		c.refuse(failure(pb.Error_CODE_INVALID, "a cell is missing from the request"))
	case p.Class > uint32(mvcc.ClassAck):
		c.refuse(failure(pb.Error_CODE_INVALID, "unknown column class %d", p.Class))
	case len(p.Row) > lim.Row:
		c.refuse(failure(pb.Error_CODE_TOO_LARGE, "row of %d bytes; at most %d", len(p.Row), lim.Row))
	case len(p.Column) > lim.Column:
		c.refuse(failure(pb.Error_CODE_TOO_LARGE, "column of %d bytes; at most %d", len(p.Column), lim.Column))
	case inRange:
		c.row(p.Table, p.Row)
	}
}

func (c *check) cells(ps []*pb.Cell) {
	if len(ps) > maxOperationCells {
		c.refuse(failure(pb.Error_CODE_TOO_LARGE, "operation on %d cells; at most %d", len(ps), maxOperationCells))
		return
	}
	for _, p := range ps {
		c.cell(p, true)
	}
}

func (c *check) resume(p *pb.Cell) {
	if p != nil {
		c.cell(p, false)
	}
}

func (c *check) writes(ws []*pb.CellWrite) {
	lim := c.tablet.cfg.Limits
	for _, w := range ws {
		c.cell(w.GetCell(), true)
		if w.GetKind() != pb.Kind_KIND_PUT && w.GetKind() != pb.Kind_KIND_DELETE {
			c.refuse(failure(pb.Error_CODE_INVALID, "unknown kind of write %d", w.GetKind()))
		}
		if len(w.GetValue()) > lim.Value {
			c.refuse(failure(pb.Error_CODE_TOO_LARGE, "value of %d bytes; at most %d", len(w.GetValue()), lim.Value))
		}
		c.bytes += len(w.GetCell().GetRow()) + len(w.GetCell().GetColumn()) + len(w.GetValue())
	}
	if c.bytes > lim.Batch {
		c.refuse(failure(pb.Error_CODE_TOO_LARGE, "operation of %d bytes; at most %d", c.bytes, lim.Batch))
	}
	if len(ws) > maxOperationCells {
		c.refuse(failure(pb.Error_CODE_TOO_LARGE, "operation of %d cells; at most %d", len(ws), maxOperationCells))
	}
}

// maxOperationCells bounds the cells of one operation, so that its effects (up to five
// keys a cell) fit one Badger Txn.
const maxOperationCells = 8 << 10

func clip(b []byte) []byte { return b[:min(len(b), 64)] }
