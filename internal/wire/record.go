package wire

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Lock converts a lock.
func Lock(l *pb.Lock) mvcc.Lock {
	return mvcc.Lock{
		StartTS: mvcc.Timestamp(l.GetStartTs()), Primary: Cell(l.GetPrimary()),
		Expiry: mvcc.Timestamp(l.GetExpiry()), Worker: Worker(l.GetWorker()),
		Kind: mvcc.Kind(l.GetKind()), Long: l.GetLong(), Value: l.GetValue(),
		Origin: mvcc.Timestamp(l.GetOrigin()), MinCommitTS: mvcc.Timestamp(l.GetMinCommitTs()),
		Secondaries: Cells(l.GetSecondaries()),
	}
}

// LockPB converts a lock.
func LockPB(l mvcc.Lock) *pb.Lock {
	return &pb.Lock{
		StartTs: uint64(l.StartTS), Primary: CellPB(l.Primary), Expiry: uint64(l.Expiry),
		Worker: WorkerPB(l.Worker), Kind: pb.Kind(l.Kind), Long: l.Long, Value: l.Value,
		Origin: uint64(l.Origin), MinCommitTs: uint64(l.MinCommitTS),
		Secondaries: CellsPB(l.Secondaries),
	}
}

// LockInfo converts an encountered lock.
func LockInfo(i *pb.LockInfo) mvcc.LockInfo {
	return mvcc.LockInfo{Cell: Cell(i.GetCell()), Lock: Lock(i.GetLock()), Intent: i.GetIntent()}
}

// LockInfoPB converts an encountered lock, without its value and secondaries.
func LockInfoPB(i mvcc.LockInfo) *pb.LockInfo {
	i.Lock.Value, i.Lock.Secondaries = nil, nil
	l := LockPB(i.Lock)
	return &pb.LockInfo{Cell: CellPB(i.Cell), Lock: l, Intent: i.Intent}
}

// WritePB converts a write record; nil stays nil.
func WritePB(w *mvcc.Write) *pb.Write {
	if w == nil {
		return nil
	}
	return &pb.Write{
		CommitTs: uint64(w.CommitTS), StartTs: uint64(w.StartTS), Kind: pb.Kind(w.Kind),
		Long: w.Long, Value: w.Value,
	}
}

// NotifyPB converts a notify entry, with only the least of its origins; nil stays nil.
func NotifyPB(n *mvcc.Notify) *pb.Notify {
	if n == nil {
		return nil
	}
	return &pb.Notify{
		Ts: uint64(n.TS), Attempts: n.Attempts, ParkedTs: uint64(n.ParkedTS), Replay: n.Replay,
		Error: n.Error, Origin: uint64(n.Origin()),
	}
}

// Notify converts a notify entry.
func Notify(n *pb.Notify) mvcc.Notify {
	out := mvcc.Notify{
		TS: mvcc.Timestamp(n.GetTs()), Attempts: n.GetAttempts(),
		ParkedTS: mvcc.Timestamp(n.GetParkedTs()), Replay: n.GetReplay(), Error: n.GetError(),
	}
	if n.GetOrigin() != n.GetTs() {
		out.Origins.First = mvcc.Timestamp(n.GetOrigin())
	}
	return out
}

// IntentPB converts a weak intent; nil stays nil.
func IntentPB(i *mvcc.Intent) *pb.Intent {
	if i == nil {
		return nil
	}
	return &pb.Intent{
		Primary: CellPB(i.Primary), Expiry: uint64(i.Expiry), Worker: WorkerPB(i.Worker),
		Origin: uint64(i.Origin),
	}
}

// Result converts a mutation's answer, without its MinCommitTs.
func Result(r *pb.MutationResult) mvcc.Result {
	out := mvcc.Result{
		Status: mvcc.Status(r.Status), CommitTS: mvcc.Timestamp(r.CommitTs),
		ConflictAt: Cell(r.ConflictAt), LeftTS: mvcc.Timestamp(r.LeftTs),
	}
	for _, l := range r.Locks {
		out.Locks = append(out.Locks, LockInfo(l))
	}
	return out
}

// FillResult converts a mutation's answer into an empty message.
func FillResult(out *pb.MutationResult, r *mvcc.Result) {
	out.Status, out.CommitTs, out.LeftTs = pb.Status(r.Status), uint64(r.CommitTS), uint64(r.LeftTS)
	out.MinCommitTs = uint64(r.MinCommitTS)
	for _, l := range r.Locks {
		info := LockInfoPB(l)
		if r.Status == mvcc.StatusLive { // the secondaries decide an asynchronous commit
			info.Lock.Secondaries = CellsPB(l.Lock.Secondaries)
		}
		out.Locks = append(out.Locks, info)
	}
	if r.ConflictAt != (mvcc.Cell{}) {
		out.ConflictAt = CellPB(r.ConflictAt)
	}
}

// FillReadResult converts the answer for one cell into an empty message.
func FillReadResult(out *pb.ReadResult, r *mvcc.ReadResult) {
	out.Status, out.Found, out.Value = pb.Status(r.Status), r.Found, r.Value
	out.CommitTs, out.StartTs, out.Deleted = uint64(r.CommitTS), uint64(r.StartTS), r.Deleted
	out.Origin = uint64(r.Origin)
	if r.Status == mvcc.StatusLocked {
		out.Lock = LockInfoPB(*r.Lock)
	}
}

// ReadResult converts the answer for one cell.
func ReadResult(r *pb.ReadResult) mvcc.ReadResult {
	out := mvcc.ReadResult{
		Status: mvcc.Status(r.Status), Found: r.Found, Value: r.Value,
		CommitTS: mvcc.Timestamp(r.CommitTs), StartTS: mvcc.Timestamp(r.StartTs),
		Deleted: r.Deleted, Origin: mvcc.Timestamp(r.Origin),
	}
	if out.Status == mvcc.StatusLocked {
		lock := LockInfo(r.Lock)
		out.Lock = &lock
	}
	return out
}

// HistoryEntryPB converts one version of a row. It leaves out the cells that an asynchronous commit's
// primary names: the caller may have no grant for their tables.
func HistoryEntryPB(e mvcc.HistoryEntry) *pb.HistoryEntry {
	out := &pb.HistoryEntry{
		Group: uint32(e.Group), Cell: CellPB(e.Cell), Ts: uint64(e.TS), Write: WritePB(e.Write),
		Notify: NotifyPB(e.Notify), Intent: IntentPB(e.Intent), Value: e.Value,
	}
	if e.Lock != nil {
		out.Lock = LockPB(*e.Lock)
		out.Lock.Secondaries = nil
	}
	return out
}
