package wire

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Operation describes a kind of operation on a tablet: an immutable row of the table below.
// Code that treats kinds of operations differently must use the row; a new operation needs
// one.
type Operation struct {
	Name string // of its field in the TabletRequest
	By   Evaluator
	Traits
	Clients Access
	Answer  AnswerSize
}

// The rows of the table.
var (
	opGet      = Operation{"get", ByReader, Repeats | NeedsTable, AccessRead, CellsAnswer}
	opScan     = Operation{"scan", ByReader, Repeats | NeedsTable, AccessRead, PageAnswer}
	opPrewrite = Operation{
		"prewrite", ByRules, InTransaction | NeedsTable, AccessChange, SmallAnswer,
	}
	opCommit = Operation{
		"commit", ByRules, InTransaction | Finishes, AccessChange, SmallAnswer,
	}
	opOnePhase = Operation{
		"one_phase", ByTablet, InTransaction | NeedsTable, AccessChange, SmallAnswer,
	}
	opRollback = Operation{
		"rollback", ByRules, InTransaction | Finishes, AccessSettle, SmallAnswer,
	}
	opCheckTxnStatus = Operation{
		"check_txn_status", ByRules, InTransaction | Finishes, AccessAsk, SmallAnswer,
	}
	opResolveLock = Operation{
		"resolve_lock", ByRules, InTransaction | Finishes, AccessSettle, SmallAnswer,
	}
	opHeartbeat = Operation{
		"heartbeat", ByRules, InTransaction | Finishes, AccessChange, SmallAnswer,
	}
	opNotify = Operation{
		"notify", ByRules, InTransaction | NeedsTable, AccessChange, SmallAnswer,
	}
	opClearNotify  = Operation{"clear_notify", ByRules, Finishes, AccessObserve, SmallAnswer}
	opFailNotify   = Operation{"fail_notify", ByRules, 0, AccessObserve, SmallAnswer}
	opRestore      = Operation{"restore", ByRules, NeedsTable, AccessNone, SmallAnswer}
	opRawWrite     = Operation{"raw_write", ByRules, 0, AccessNone, SmallAnswer}
	opRawGet       = Operation{"raw_get", ByReader, Repeats, AccessRead, CellsAnswer}
	opRawScan      = Operation{"raw_scan", ByReader, Repeats, AccessRead, PageAnswer}
	opWalk         = Operation{"walk", ByReader, Repeats, AccessRead, PageAnswer}
	opHistory      = Operation{"history", ByReader, Repeats, AccessRead, PageAnswer}
	opChanges      = Operation{"changes", ByReader, Repeats | NeedsTable, AccessRead, PageAnswer}
	opPending      = Operation{"pending", ByReader, Repeats, AccessRead, SmallAnswer}
	opSplit        = Operation{"split", ByTablet, 0, AccessNone, SmallAnswer}
	opMerge        = Operation{"merge", ByTablet, Finishes, AccessNone, SmallAnswer}
	opSetCatalogue = Operation{
		"set_catalogue", ByTablet, Repeats | Finishes, AccessNone, SmallAnswer,
	}
	opMark           = Operation{"mark", ByTablet, Repeats | Finishes, AccessNone, SmallAnswer}
	opStatus         = Operation{"status", ByReplica, Repeats | Finishes, AccessRead, SmallAnswer}
	opCollect        = Operation{"collect", ByTablet, Repeats | Finishes, AccessNone, SmallAnswer}
	opChangeReplicas = Operation{"change_replicas", ByTablet, Finishes, AccessNone, SmallAnswer}
	opTransferLeader = Operation{"transfer_leader", ByTablet, Finishes, AccessNone, SmallAnswer}
	opChecksum       = Operation{"checksum", ByTablet, Finishes, AccessNone, SmallAnswer}

	// Rows of the requests in the fields mark and checksum that only read.
	opReadMark     = Operation{"mark", ByLeader, Repeats | Finishes, AccessNone, SmallAnswer}
	opReadChecksum = Operation{"checksum", ByReplica, Repeats | Finishes, AccessNone, SmallAnswer}

	opUnknown Operation
)

// Evaluator is the component that evaluates an operation.
type Evaluator uint8

// Evaluators.
const (
	// ByNobody marks operations that are not in the table.
	ByNobody Evaluator = iota
	// ByReader is a read worker, on a view of the leader's state, after a ReadIndex.
	ByReader
	// ByLeader is the leader, after a ReadIndex has confirmed its leadership.
	ByLeader
	// ByRules is one function of internal/mvcc, whose effects are proposed.
	ByRules
	// ByTablet is the leader, with code specific to the operation: most propose an entry, some
	// only answer.
	ByTablet
	// ByReplica is any replica, at once.
	ByReplica
)

// Traits are properties that operations may share.
type Traits uint8

// Traits of operations.
const (
	// Repeats: the operation may be repeated after a lost answer, because it changes nothing
	// or is idempotent regardless of operations in between.
	Repeats Traits = 1 << iota
	// Finishes: an overloaded tablet must still accept the operation, so that transactions can
	// finish and clean up (design section 5). It bypasses the queue limit and runs on a full
	// disk.
	Finishes
	// InTransaction: the operation has the start timestamp of a transaction or, as a replay, a
	// timestamp of its own.
	InTransaction
	// NeedsTable: the operation is refused after the table has been dropped, and while the
	// table is being restored from a backup unless it is part of the restore. Operations that
	// end transactions lack this trait (design section 2).
	NeedsTable
)

// Has reports whether t includes the trait.
func (t Traits) Has(one Traits) bool { return t&one != 0 }

// Access is a remote client's permission for an operation. Nodes may perform all.
type Access uint8

// Kinds of access.
const (
	// AccessNone: the operation is for nodes only.
	AccessNone Access = iota
	// AccessRead allows every table but that of the timers, including the cluster's own, where
	// clients look up tables.
	AccessRead
	// AccessAsk allows status checks of others' transactions on every column of users' tables.
	// A check ends an expired transaction.
	AccessAsk
	// AccessSettle allows ending others' transactions on every column of users' tables.
	AccessSettle
	// AccessChange allows writes to users' columns of users' tables and to timers of such tables,
	// and workers' writes to acknowledgments.
	AccessChange
	// AccessObserve allows workers (docs/adr/0073) to end and to fail notifications of users'
	// tables.
	AccessObserve
)

// AnswerSize is the memory that the answer of an operation may need.
type AnswerSize uint8

// Sizes of answers.
const (
	SmallAnswer AnswerSize = iota // a result or a few numbers
	CellsAnswer                   // the requested cells
	PageAnswer                    // up to one page
)

// OperationOf returns the row of the request's operation. For an unknown operation, or none, the
// row has ByNobody and AccessNone.
func OperationOf(req *pb.TabletRequest) *Operation {
	switch op := req.GetOp().(type) {
	case *pb.TabletRequest_Get:
		return &opGet
	case *pb.TabletRequest_Scan:
		return &opScan
	case *pb.TabletRequest_Prewrite:
		return &opPrewrite
	case *pb.TabletRequest_Commit:
		return &opCommit
	case *pb.TabletRequest_OnePhase:
		return &opOnePhase
	case *pb.TabletRequest_Rollback:
		return &opRollback
	case *pb.TabletRequest_CheckTxnStatus:
		return &opCheckTxnStatus
	case *pb.TabletRequest_ResolveLock:
		return &opResolveLock
	case *pb.TabletRequest_Heartbeat:
		return &opHeartbeat
	case *pb.TabletRequest_Notify:
		return &opNotify
	case *pb.TabletRequest_ClearNotify:
		return &opClearNotify
	case *pb.TabletRequest_FailNotify:
		return &opFailNotify
	case *pb.TabletRequest_Restore:
		return &opRestore
	case *pb.TabletRequest_RawWrite:
		return &opRawWrite
	case *pb.TabletRequest_RawGet:
		return &opRawGet
	case *pb.TabletRequest_RawScan:
		return &opRawScan
	case *pb.TabletRequest_Walk:
		return &opWalk
	case *pb.TabletRequest_History:
		return &opHistory
	case *pb.TabletRequest_Changes:
		return &opChanges
	case *pb.TabletRequest_Pending:
		return &opPending
	case *pb.TabletRequest_Split:
		return &opSplit
	case *pb.TabletRequest_Merge:
		return &opMerge
	case *pb.TabletRequest_SetCatalogue:
		return &opSetCatalogue
	case *pb.TabletRequest_Mark:
		if op.Mark.GetRaiseTo() == 0 {
			return &opReadMark
		}
		return &opMark
	case *pb.TabletRequest_Status:
		return &opStatus
	case *pb.TabletRequest_Collect:
		return &opCollect
	case *pb.TabletRequest_ChangeReplicas:
		return &opChangeReplicas
	case *pb.TabletRequest_TransferLeader:
		return &opTransferLeader
	case *pb.TabletRequest_Checksum:
		if op.Checksum.GetId() != 0 {
			return &opReadChecksum
		}
		return &opChecksum
	}
	return &opUnknown
}

// Reads reports whether the operation changes nothing and the leader answers it after a
// ReadIndex has confirmed its leadership.
func (o *Operation) Reads() bool { return o.By == ByReader || o.By == ByLeader }

// Subject lists the timestamps, cells and spans of a request, independent of its operation. It
// shares the request's memory.
type Subject struct {
	Start  uint64 // the transaction's start timestamp
	Latest uint64 // the greatest timestamp, at least Start, that the request claims as the oracle's
	Expiry uint64 // expiry that it sets for a lock

	// Writes, Cells and Intents are in the range of the request's tablet. Intents are
	// cells of weak columns.
	Writes  []*pb.CellWrite
	Cells   []*pb.Cell
	Intents []*pb.Cell
	// Cell, if HasCell, is the cell of an operation on a single cell, or the primary of a
	// prewrite. If Elsewhere, another tablet may hold it.
	HasCell, Elsewhere bool
	Cell               *pb.Cell
	Span               *pb.Span // the tablet holds a part of it
	// Named are cells that the request writes down as the transaction's; any tablet may hold them.
	Named []*pb.Cell

	// Incomplete: a required message is missing. Elements of Cells and Writes may still be
	// nil.
	Incomplete bool
}

// SubjectOf returns the subject of the request.
func SubjectOf(req *pb.TabletRequest) (s Subject) {
	switch op := req.GetOp().(type) {
	case *pb.TabletRequest_Get:
		s.Latest, s.Cells = op.Get.GetAt(), op.Get.GetCells()
		s.Incomplete = len(s.Cells) == 0
	case *pb.TabletRequest_Scan:
		s.Latest, s.Span = op.Scan.GetAt(), op.Scan.GetSpan()
		s.Incomplete = s.Span == nil
	case *pb.TabletRequest_Changes:
		s.Latest, s.Span = op.Changes.GetSince(), op.Changes.GetSpan()
		s.Incomplete = s.Span == nil
	case *pb.TabletRequest_Prewrite:
		s.Start, s.Expiry = op.Prewrite.GetStartTs(), op.Prewrite.GetExpiry()
		s.HasCell, s.Elsewhere, s.Cell = true, true, op.Prewrite.GetPrimary()
		s.Writes, s.Intents = op.Prewrite.GetWrites(), op.Prewrite.GetIntents()
		s.Named = op.Prewrite.GetSecondaries()
		s.Incomplete = len(s.Writes)+len(s.Intents) == 0
	case *pb.TabletRequest_Commit:
		s.Start, s.Latest = op.Commit.GetStartTs(), op.Commit.GetCommitTs()
		s.Cells, s.Intents = op.Commit.GetCells(), op.Commit.GetIntents()
		s.Incomplete = len(s.Cells)+len(s.Intents) == 0
	case *pb.TabletRequest_OnePhase:
		s.Start = op.OnePhase.GetStartTs()
		s.Writes, s.Intents = op.OnePhase.GetWrites(), op.OnePhase.GetNotifies()
		s.Incomplete = len(s.Writes) == 0
	case *pb.TabletRequest_Rollback:
		s.Start = op.Rollback.GetStartTs()
		s.Cells, s.Intents = op.Rollback.GetCells(), op.Rollback.GetIntents()
		s.Incomplete = len(s.Cells)+len(s.Intents) == 0
	case *pb.TabletRequest_CheckTxnStatus:
		s.Start, s.Latest = op.CheckTxnStatus.GetStartTs(), op.CheckTxnStatus.GetNow()
		s.HasCell, s.Cell = true, op.CheckTxnStatus.GetPrimary()
	case *pb.TabletRequest_ResolveLock:
		s.Start, s.Latest = op.ResolveLock.GetStartTs(), op.ResolveLock.GetCommitTs()
		s.Cells, s.Intents = op.ResolveLock.GetCells(), op.ResolveLock.GetIntents()
		s.Incomplete = len(s.Cells)+len(s.Intents) == 0
	case *pb.TabletRequest_Heartbeat:
		s.Start, s.Expiry = op.Heartbeat.GetStartTs(), op.Heartbeat.GetExpiry()
		s.HasCell, s.Cell = true, op.Heartbeat.GetPrimary()
	case *pb.TabletRequest_Notify:
		s.Start, s.Cells = op.Notify.GetTs(), op.Notify.GetCells()
		s.Incomplete = len(s.Cells) == 0
	case *pb.TabletRequest_ClearNotify:
		s.Cells = op.ClearNotify.GetCells()
		s.HasCell, s.Cell = len(s.Cells) == 0, op.ClearNotify.GetCell()
	case *pb.TabletRequest_FailNotify:
		s.HasCell, s.Cell = true, op.FailNotify.GetCell()
	case *pb.TabletRequest_Restore:
		s.Writes = op.Restore.GetWrites()
		s.Latest = slices.Max(append([]uint64{0}, op.Restore.GetCommitTs()...))
		s.Incomplete = len(s.Writes) == 0 || len(s.Writes) != len(op.Restore.GetStartTs()) ||
			len(s.Writes) != len(op.Restore.GetCommitTs())
	case *pb.TabletRequest_RawWrite:
		s.Writes = op.RawWrite.GetWrites()
	case *pb.TabletRequest_RawGet:
		s.Cells = op.RawGet.GetCells()
		s.Incomplete = len(s.Cells) == 0
	case *pb.TabletRequest_RawScan:
		s.Span = op.RawScan.GetSpan()
		s.Incomplete = s.Span == nil
	case *pb.TabletRequest_Walk:
		s.Incomplete = op.Walk == nil
	case *pb.TabletRequest_History:
		s.Cells, s.Incomplete = op.History.GetCells(), op.History == nil
	case nil:
		s.Incomplete = true
	}
	s.Latest = max(s.Latest, s.Start)
	return s
}
