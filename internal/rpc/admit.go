package rpc

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Checks of a remote client's operation that are independent of its role, which access.go
// checks. They have no state and send nothing; workers of all streams run them concurrently.
// The checks that require the oracle or meta follow (future.go, tableids.go).

// admission collects the reasons to refuse one request. A remote client may read everything but
// timers, and change users' columns of user tables in transactions, but may not change what belongs
// to the nodes. A request that lacks a nested message is refused too, so that later code need not
// check for nil.
type admission struct {
	incomplete bool   // a nested message is missing
	forbidden  string // why the request is for nodes only; empty if allowed
	highest    uint32 // the greatest table id of a cell or span
	works      bool   // Caller.works
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

// admit returns the greatest table id in the request, and an error if the request is refused.
// It lowers the MaxBytes of a scan to maxGetBytes. works is Caller.works.
func admit(req *pb.TabletRequest, works bool) (table uint32, refusal *pb.Error) {
	a := admission{works: works}
	a.request(req)
	switch {
	// First: the missing message might have been a forbidden one.
	case a.incomplete:
		return 0, errorOf(pb.Error_CODE_INVALID, "the request is incomplete")
	case a.forbidden != "":
		return 0, errorOf(pb.Error_CODE_PERMISSION, "%s", a.forbidden)
	}
	return a.highest, nil
}

// request inspects every nested message.
func (a *admission) request(req *pb.TabletRequest) {
	op, s := wire.OperationOf(req), wire.SubjectOf(req)
	a.need(!s.Incomplete)
	if _, raw := req.Op.(*pb.TabletRequest_RawWrite); raw {
		a.forbid(notRaw)
	}
	if op.Clients == wire.AccessNone || op.Clients == wire.AccessObserve && !a.works {
		a.forbid(forNodes)
		return
	}
	access := op.Clients
	if req.GetNotify().GetReplay() {
		// The request marks notify entries, which are at acknowledgments if the observer has
		// entries of its own.
		access = wire.AccessSettle
	}
	if s.HasCell {
		a.cells(access, s.Cell)
	}
	for _, w := range s.Writes {
		a.cells(op.Clients, w.GetCell())
	}
	a.cells(access, s.Cells...)
	a.cells(op.Clients, s.Named...)
	a.cells(op.Clients, s.Intents...)
	// A span is only read, so only its table matters.
	a.highest = max(a.highest, s.Span.GetTable())
	if readsTimers(req, &s) {
		a.forbid(ofTimers)
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_ResolveLock:
		// The tablet trusts a caller that resolves an acknowledgment's lock as committed, so
		// only nodes, whose sweepers do it, and workers may.
		if op.ResolveLock.GetCommitTs() != 0 {
			a.cells(wire.AccessChange, s.Cells...)
		}
	case *pb.TabletRequest_Scan:
		// The message has just been decoded and is not shared yet, so it may be changed.
		if op.Scan != nil && (op.Scan.MaxBytes == 0 || op.Scan.MaxBytes > maxGetBytes) {
			op.Scan.MaxBytes = maxGetBytes
		}
	}
}

// cells checks the access to the cells. Any cell but a timer may be read, and other clients'
// transactions in user tables may be ended: a client that encounters a lock may check the status at
// its primary, which may be an acknowledgment, and roll it back there. Meta's records define the
// tablets: a client that wrote them could destroy the cluster. An acknowledgment records that an
// observer has processed a change: one written by a client that is not a worker would prevent the
// observer from ever seeing the change (design section 4, "A notification is written with its write
// record").
func (a *admission) cells(access wire.Access, cells ...*pb.Cell) {
	for _, c := range cells {
		a.need(c != nil)
		if mvcc.TableID(c.GetTable()) == mvcc.TimerTable {
			a.timer(access, c)
			continue
		}
		a.highest = max(a.highest, c.GetTable())
		// Any cell may be read.
		if access == wire.AccessRead {
			continue
		}
		if mvcc.TableID(c.GetTable()) < mvcc.FirstUserTable {
			a.forbid(ofMeta)
		}
		own := a.works && c.GetClass() == uint32(mvcc.ClassAck)
		if access == wire.AccessChange && c.GetClass() != uint32(mvcc.ClassData) && !own {
			a.forbid(ofAcks)
		}
	}
}

// timer checks the access to a cell of the timer table. The cell's row names the timer's
// target table, which is the one that counts, also for grants (tablesOf). Reading timers is
// refused because it would disclose rows of that table.
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

// forbid records the first reason to refuse the request.
func (a *admission) forbid(why string) {
	if a.forbidden == "" {
		a.forbidden = why
	}
}

// need marks the request incomplete unless ok.
func (a *admission) need(ok bool) { a.incomplete = a.incomplete || !ok }
