package wire

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Conversions of the rules' requests. A nil message converts to the zero request.

// Prewrite converts a PrewriteRequest. The tablet sets MinCommitTS of an asynchronous one.
func Prewrite(r *pb.PrewriteRequest) mvcc.PrewriteRequest {
	return mvcc.PrewriteRequest{
		StartTS: mvcc.Timestamp(r.GetStartTs()), Primary: Cell(r.GetPrimary()),
		Expiry: mvcc.Timestamp(r.GetExpiry()),
		Worker: Worker(r.GetWorker()), Writes: Writes(r.GetWrites()),
		Intents: Cells(r.GetIntents()), Origin: mvcc.Timestamp(r.GetOrigin()),
		Secondaries: Cells(r.GetSecondaries()),
	}
}

// Commit converts a CommitRequest.
func Commit(r *pb.CommitRequest) mvcc.CommitRequest {
	return mvcc.CommitRequest{
		StartTS: mvcc.Timestamp(r.GetStartTs()), CommitTS: mvcc.Timestamp(r.GetCommitTs()),
		Cells: Cells(r.GetCells()), Intents: Cells(r.GetIntents()), Clear: r.GetClear(),
	}
}

// OnePhase converts a OnePhaseRequest.
func OnePhase(r *pb.OnePhaseRequest) mvcc.OnePhaseRequest {
	return mvcc.OnePhaseRequest{
		StartTS: mvcc.Timestamp(r.GetStartTs()), Writes: Writes(r.GetWrites()),
		Notifies: Cells(r.GetNotifies()), Origin: mvcc.Timestamp(r.GetOrigin()),
		Clear: r.GetClear(),
	}
}

// Rollback converts a RollbackRequest.
func Rollback(r *pb.RollbackRequest) mvcc.RollbackRequest {
	return mvcc.RollbackRequest{
		StartTS: mvcc.Timestamp(r.GetStartTs()), Cells: Cells(r.GetCells()),
		Intents: Cells(r.GetIntents()), Ask: r.GetAsk(),
	}
}

// CheckTxnStatus converts a CheckTxnStatusRequest.
func CheckTxnStatus(r *pb.CheckTxnStatusRequest) mvcc.CheckTxnStatusRequest {
	return mvcc.CheckTxnStatusRequest{
		Primary: Cell(r.GetPrimary()), StartTS: mvcc.Timestamp(r.GetStartTs()),
		Now:       mvcc.Timestamp(r.GetNow()),
		MetExpiry: mvcc.Timestamp(r.GetMetExpiry()), WorkerDead: r.GetWorkerDead(),
	}
}

// ResolveLock converts a ResolveLockRequest.
func ResolveLock(r *pb.ResolveLockRequest) mvcc.ResolveLockRequest {
	return mvcc.ResolveLockRequest{
		StartTS: mvcc.Timestamp(r.GetStartTs()), CommitTS: mvcc.Timestamp(r.GetCommitTs()),
		Cells: Cells(r.GetCells()), Intents: Cells(r.GetIntents()),
	}
}

// Heartbeat converts a HeartbeatRequest.
func Heartbeat(r *pb.HeartbeatRequest) mvcc.HeartbeatRequest {
	return mvcc.HeartbeatRequest{
		Primary: Cell(r.GetPrimary()), StartTS: mvcc.Timestamp(r.GetStartTs()),
		Expiry: mvcc.Timestamp(r.GetExpiry()),
	}
}

// NotifyCells converts a NotifyRequest.
func NotifyCells(r *pb.NotifyRequest) mvcc.NotifyRequest {
	return mvcc.NotifyRequest{
		TS: mvcc.Timestamp(r.GetTs()), Cells: Cells(r.GetCells()), Replay: r.GetReplay(),
		Origin: mvcc.Timestamp(r.GetOrigin()),
	}
}

// ClearNotify converts a ClearNotifyRequest to one request per cell.
func ClearNotify(r *pb.ClearNotifyRequest) []mvcc.ClearNotifyRequest {
	one := mvcc.ClearNotifyRequest{
		UpTo: mvcc.Timestamp(r.GetUpTo()), Origin: mvcc.Timestamp(r.GetOrigin()),
		Ended: mvcc.Timestamp(r.GetEnded()), Observer: r.GetObserver(),
	}
	if len(r.GetCells()) == 0 {
		one.Cell = Cell(r.GetCell())
		return []mvcc.ClearNotifyRequest{one}
	}
	out := make([]mvcc.ClearNotifyRequest, len(r.Cells))
	for i, c := range r.Cells {
		out[i] = one
		out[i].Cell = Cell(c)
	}
	return out
}

// FailNotify converts a FailNotifyRequest.
func FailNotify(r *pb.FailNotifyRequest) mvcc.FailNotifyRequest {
	return mvcc.FailNotifyRequest{
		Cell: Cell(r.GetCell()), TS: mvcc.Timestamp(r.GetTs()), Attempts: r.GetAttempts(),
		ParkedTS: mvcc.Timestamp(r.GetParkedTs()), Error: r.GetError(), Observer: r.GetObserver(),
	}
}

// Restore converts a RestoreRequest. It must have a start and a commit timestamp for each write.
func Restore(r *pb.RestoreRequest) mvcc.RestoreRequest {
	out := mvcc.RestoreRequest{Records: make([]mvcc.RestoredCell, len(r.GetWrites()))}
	for i, w := range r.GetWrites() {
		out.Records[i] = mvcc.RestoredCell{
			Cell: Cell(w.GetCell()), Value: w.GetValue(),
			StartTS: mvcc.Timestamp(r.StartTs[i]), CommitTS: mvcc.Timestamp(r.CommitTs[i]),
		}
	}
	return out
}

// RestorePB converts records for a RestoreRequest.
func RestorePB(records []mvcc.RestoredCell) *pb.RestoreRequest {
	r := &pb.RestoreRequest{
		Writes:  make([]*pb.CellWrite, len(records)),
		StartTs: make([]uint64, len(records)), CommitTs: make([]uint64, len(records)),
	}
	for i := range records {
		rec := &records[i]
		r.Writes[i] = &pb.CellWrite{
			Cell: CellPB(rec.Cell), Kind: pb.Kind_KIND_PUT, Value: rec.Value,
		}
		r.StartTs[i], r.CommitTs[i] = uint64(rec.StartTS), uint64(rec.CommitTS)
	}
	return r
}

// RawWrite converts a RawWriteRequest.
func RawWrite(r *pb.RawWriteRequest) mvcc.RawWriteRequest {
	out := mvcc.RawWriteRequest{Writes: Writes(r.GetWrites())}
	for _, c := range r.GetConditions() {
		out.Conditions = append(out.Conditions,
			mvcc.RawCondition{Cell: Cell(c.Cell), Absent: c.Absent, Value: c.Value})
	}
	return out
}

// Scan converts a ScanRequest.
func Scan(r *pb.ScanRequest) mvcc.ScanRequest {
	out := mvcc.ScanRequest{
		Span: Span(r.GetSpan()), At: mvcc.Timestamp(r.GetAt()), Reverse: r.GetReverse(),
		Acks:    r.GetAcks(),
		MaxRows: int(r.GetMaxRows()), MaxBytes: int(r.GetMaxBytes()),
		Records: r.GetRecords(),
	}
	for _, c := range r.GetColumns() {
		out.Columns = append(out.Columns, String(c))
	}
	if out.Records {
		out.Since = mvcc.Timestamp(r.GetSince())
		out.ResumeTS = mvcc.Timestamp(r.GetResumeTs())
	} else {
		out.KeysOnly, out.WrittenBefore = r.GetKeysOnly(), mvcc.Timestamp(r.GetWrittenBefore())
	}
	if r.GetResume() != nil {
		c := Cell(r.GetResume())
		out.Resume = &c
	}
	return out
}

// ScanResultPB converts a page.
func ScanResultPB(r mvcc.ScanResult) *pb.ScanResponse {
	out := &pb.ScanResponse{
		Status: pb.Status(r.Status), Done: r.Done, Cells: make([]*pb.ReadCell, len(r.Cells)),
		LastTs: uint64(r.LastTS), OldestTs: uint64(r.Oldest),
	}
	for i, c := range r.Cells {
		out.Cells[i] = &pb.ReadCell{
			Cell: CellPB(c.Cell), Value: c.Value, CommitTs: uint64(c.CommitTS),
			StartTs: uint64(c.StartTS), Deleted: c.Deleted,
		}
	}
	if r.Last != nil {
		out.Last = CellPB(*r.Last)
	}
	if r.Status == mvcc.StatusLocked {
		out.Lock = LockInfoPB(r.Lock)
	}
	return out
}
