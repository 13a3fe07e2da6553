package rpc

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file decides what any remote client may do by the operation alone, whatever its
// role is: that is in access.go. It keeps nothing and asks nobody; workers of all streams
// call it at once. What takes the oracle or meta to decide follows it (future.go,
// tableids.go).

// admission collects what there is to say against one request. A remote client may read
// everything, and change users' columns of user tables in transactions, but nothing that
// belongs to the nodes themselves. A request with a message missing inside is refused as
// well, so that nobody behind has to check for nil.
type admission struct {
	incomplete bool   // something is missing
	forbidden  string // why it is for nodes only; empty if it is not
	highest    uint32 // the greatest table id of a cell or span
}

// Reasons to refuse a request.
const (
	forNodes = "this operation is for nodes only"
	ofMeta   = "this operation is for nodes only: the table is the cluster's own"
	ofTimers = "timers are set by transactions (Tx.NotifyAfter), and read by the nodes alone"
	noTimer  = "the table of timers takes timers of users' tables only"
	ofAcks   = "acknowledgments are written by observers' runs only"
	notRaw   = "raw cells are the nodes' own, and no scan would show them: write in a transaction"
)

// admit returns why the request is refused, nil if it is not, and the greatest id of a
// table that it is about. It may lower the limit of a scan.
func admit(req *pb.TabletRequest) (table uint32, refusal *pb.Error) {
	var a admission
	a.request(req)
	switch {
	// First: what is missing may be what would have been forbidden.
	case a.incomplete:
		return 0, &pb.Error{Code: pb.Error_CODE_INVALID, Message: "the request is incomplete"}
	case a.forbidden != "":
		return 0, &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: a.forbidden}
	}
	return a.highest, nil
}

// request looks at every message inside. After decoding a missing one is nil or empty,
// which cannot be told apart.
func (a *admission) request(req *pb.TabletRequest) {
	op, s := wire.OperationOf(req), wire.SubjectOf(req)
	a.need(!s.Incomplete)
	if _, raw := req.Op.(*pb.TabletRequest_RawWrite); raw {
		a.forbid(notRaw)
	}
	if op.Clients == wire.AccessNone {
		a.forbid(forNodes)
		return
	}
	if s.HasCell {
		a.cells(op.Clients, s.Cell)
	}
	for _, w := range s.Writes {
		a.cells(op.Clients, w.GetCell())
	}
	a.cells(op.Clients, s.Cells...)
	a.cells(op.Clients, s.Intents...)
	// A span is only read, so nothing but its table matters.
	a.highest = max(a.highest, s.Span.GetTable())
	if readsTimers(req, &s) {
		a.forbid(ofTimers)
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_ResolveLock:
		// Whoever says "committed" of an acknowledgment's lock is believed by the tablet,
		// so that is left to the nodes, whose sweepers do it by themselves.
		if op.ResolveLock.GetCommitTs() != 0 {
			a.cells(wire.AccessChange, s.Cells...)
		}
	case *pb.TabletRequest_Scan:
		// The message has just been decoded, so it is still ours to change.
		if op.Scan != nil && (op.Scan.MaxBytes == 0 || op.Scan.MaxBytes > maxGetBytes) {
			op.Scan.MaxBytes = maxGetBytes
		}
	}
}

// cells admits the access to the cells. Any cell may be read, and what others have begun in
// cells of users' tables may be ended: whoever meets a lock may ask its primary, which may
// be an acknowledgment, and roll it back there. Meta's own records decide who owns what: a
// client that could write them could take the cluster apart. An acknowledgment says that
// an observer has seen a change: one that a client had written would keep the change from
// ever being seen (invariant 12 of design section 4).
func (a *admission) cells(access wire.Access, cells ...*pb.Cell) {
	for _, c := range cells {
		a.need(c != nil)
		if mvcc.TableID(c.GetTable()) == mvcc.TimerTable {
			a.timer(access, c)
			continue
		}
		a.highest = max(a.highest, c.GetTable())
		// Whatever the cell is, it may be read.
		if access == wire.AccessRead {
			continue
		}
		if mvcc.TableID(c.GetTable()) < mvcc.FirstUserTable {
			a.forbid(ofMeta)
		}
		if access == wire.AccessChange && c.GetClass() != uint32(mvcc.ClassData) {
			a.forbid(ofAcks)
		}
	}
}

// timer admits the access to a cell of the table of timers, which says in its row which table
// it is for: that is the table that counts, for grants too (tablesOf). To read one would be to
// read the rows of that table.
func (a *admission) timer(access wire.Access, c *pb.Cell) {
	table, ok := mvcc.TimerTarget(wire.Cell(c))
	switch {
	case access == wire.AccessRead:
		a.forbid(ofTimers)
	case !ok:
		a.forbid(noTimer)
	}
	a.highest = max(a.highest, uint32(table))
}

// readsTimers reports whether the request reads a range of the table of timers.
func readsTimers(req *pb.TabletRequest, s *wire.Subject) bool {
	table := s.Span.GetTable()
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Walk:
		table = op.Walk.GetTable()
	case *pb.TabletRequest_History:
		table = op.History.GetTable()
	}
	return mvcc.TableID(table) == mvcc.TimerTable
}

// forbid keeps the first reason to refuse the request.
func (a *admission) forbid(why string) {
	if a.forbidden == "" {
		a.forbidden = why
	}
}

// need marks the request incomplete unless ok.
func (a *admission) need(ok bool) { a.incomplete = a.incomplete || !ok }
