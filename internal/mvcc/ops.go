package mvcc

// The requests and results of the operations of design section 4. They are what the wire messages
// (api/percolator/v1) say, in terms that the rules can use; internal/wire converts.

// Limits bounds single cells and batches. Sizes are in bytes.
type Limits struct {
	Row    int // default 4 KiB
	Column int // default 1 KiB
	Value  int // default 4 MiB, at most 6 MiB
	Batch  int // default 8 MiB: rows, columns and values of one operation together
	Inline int // default 1 KiB: longer values go to D
}

// DefaultLimits returns the limits of design section 2.
func DefaultLimits() Limits {
	return Limits{Row: 4 << 10, Column: 1 << 10, Value: 4 << 20, Batch: 8 << 20, Inline: 1 << 10}
}

// Status is the result of an operation. Every status except StatusOK leaves no effects, unless
// stated otherwise.
type Status uint8

const (
	// StatusOK means success. CommitTS is set where the operation has one.
	StatusOK Status = iota
	// StatusLocked means that a lock is in the way. Locks has it; wait or resolve, then retry.
	StatusLocked
	// StatusConflict means that a write record, or a committed lock without a write, with
	// commit_ts ≥ start_ts exists. Permanent for this transaction.
	StatusConflict
	// StatusRolledBack means that the transaction is rolled back. Permanent. May have effects (a
	// rollback record).
	StatusRolledBack
	// StatusCommitted means that the transaction is already committed, at CommitTS.
	StatusCommitted
	// StatusLive is the answer of CheckTxnStatus if the primary lock is part of an asynchronous
	// commit, or has neither expired nor a dead worker, or may still arrive. Locks[0] is the lock if
	// it exists. It is also the answer of Rollback if all cells have locks of an asynchronous commit.
	StatusLive
	// StatusNotFound means that Commit, Heartbeat or a Rollback with Ask found neither lock nor
	// record, and that start_ts is not below the safepoint. It is no rollback.
	StatusNotFound
	// StatusUnknown means that there is neither lock nor record and that start_ts is below the
	// safepoint: a record may have been collected, so nothing may be inferred.
	StatusUnknown
	// StatusTooOld means that start_ts or the read timestamp is below the bound.
	// Permanent.
	StatusTooOld
	// StatusNotifyOnly means that a weak column was written, that a column that is not weak was
	// notified, or that a replay named a cell that is no observer's notify cell. Permanent.
	StatusNotifyOnly
	// StatusCommitTSTooLow means that commit_ts is not above both start_ts and the newest
	// record's commit_ts, or is below a lock's MinCommitTS. Request a later one.
	StatusCommitTSTooLow
	// StatusMismatch means that a raw condition did not hold, or that Restore found a lock or
	// another record.
	StatusMismatch
)

// Result is the answer of a mutation.
type Result struct {
	Status Status
	// CommitTS is set with Committed, with Conflict (of the newer record), with a Mismatch at a
	// deleted cell (of the delete), and with OK if the operation has one.
	CommitTS   Timestamp
	Locks      []LockInfo // set with Locked and Live
	ConflictAt Cell       // set with Conflict, NotifyOnly and Mismatch: the cell that is the reason
	// Ended are the runs of observers for which the operation has cleared notifications, found
	// them gone, or left them. Left are the cells of notifications that were left because they are
	// newer, or have an older origin, than the run. LeftTS is the latest timestamp of these
	// notifications.
	Ended  []EndedRun
	Left   []Cell
	LeftTS Timestamp
	// MinCommitTS is the greatest MinCommitTS of the request's locks of an asynchronous commit, set
	// by Prewrite with OK and by Rollback with Live.
	MinCommitTS Timestamp
}

// EndedRun is a run for changes in a table. Origin is the oldest origin of these changes. The run
// has committed at End, or before.
type EndedRun struct {
	Table       TableID
	Origin, End Timestamp
}

// CellWriteRequest is one buffered write of a transaction.
type CellWriteRequest struct {
	Cell  Cell
	Kind  Kind
	Value []byte
}

// PrewriteRequest locks cells of one tablet (§2.2, Figure 6 line 27). All or none.
type PrewriteRequest struct {
	StartTS Timestamp
	Primary Cell
	Expiry  Timestamp
	Worker  Worker
	Writes  []CellWriteRequest
	Intents []Cell    // weak notifications
	Origin  Timestamp // the oldest of the users' commits that caused it; 0: its own commit
	// MinCommitTS, if not 0, makes the request a part of an asynchronous commit. The oracle issued
	// it after the tablet had reserved the cells. Secondaries are all cells of the transaction but
	// the primary, if the primary is among Writes; otherwise there are none.
	MinCommitTS Timestamp
	Secondaries []Cell
}

// CommitRequest commits prewritten cells and intents at CommitTS (Figure 6 lines 50 to
// 64). The request that holds the primary must hold only cells of the primary's tablet.
type CommitRequest struct {
	StartTS  Timestamp
	CommitTS Timestamp
	Cells    []Cell
	Intents  []Cell
	Clear    bool // acknowledgments among the cells clear the notifications that they are for
}

// OnePhaseRequest is a whole transaction whose cells are in one tablet.
type OnePhaseRequest struct {
	StartTS  Timestamp
	Writes   []CellWriteRequest
	Notifies []Cell
	Origin   Timestamp // the oldest of the users' commits that caused it; 0: its own commit
	Clear    bool      // as in CommitRequest
}

// RollbackRequest rolls the transaction back at the cells, leaving a record at each. If one of them
// is committed the status is StatusCommitted with its CommitTS.
type RollbackRequest struct {
	StartTS Timestamp
	Cells   []Cell
	Intents []Cell
	Ask     bool // only reports the state of Cells, at least one, and has no effects; see Rollback
}

// CheckTxnStatusRequest requests the decision at the primary.
type CheckTxnStatusRequest struct {
	Primary   Cell
	StartTS   Timestamp
	Now       Timestamp // oracle time
	MetExpiry Timestamp // expiry of the lock that the caller met; counts if the primary has no lock
	// a positive death event names the lock's worker: do not wait for the expiry
	WorkerDead bool
}

// ResolveLockRequest applies a known decision: CommitTS 0 rolls back. Cells without the
// transaction's lock and intents that are gone are unchanged.
type ResolveLockRequest struct {
	StartTS  Timestamp
	CommitTS Timestamp
	Cells    []Cell
	Intents  []Cell
}

// HeartbeatRequest moves the primary lock's expiry forward, never back.
type HeartbeatRequest struct {
	Primary Cell
	StartTS Timestamp
	Expiry  Timestamp
}

// NotifyRequest writes N entries directly: a transaction of weak notifications alone, or
// a replay.
type NotifyRequest struct {
	TS    Timestamp
	Cells []Cell
	// Replay makes the observer run once whatever it has acknowledged before TS: strong
	// columns too, and parked entries.
	Replay bool
	Origin Timestamp // the oldest of the users' commits that caused it; 0: its own commit
}

// ClearNotifyRequest removes the N entry if N.ts ≤ UpTo and, for a run that has written, if the
// entry's origin is not older than that of its writes.
type ClearNotifyRequest struct {
	Cell   Cell
	UpTo   Timestamp
	Origin Timestamp // of the run, and so of its writes; 0: no run
	Ended  Timestamp // when the run committed, or later; leaders remember it; 0: no run
	// Observer, unless empty, is the observer that has run: an entry of another observer stays.
	Observer string
}

// FailNotifyRequest records a failed run in the N entry that it ran for: the number of failures,
// and whether the entry is parked. An entry with another timestamp than TS is unchanged.
type FailNotifyRequest struct {
	Cell     Cell
	TS       Timestamp
	Attempts uint32
	ParkedTS Timestamp
	Error    string
	Observer string // as in ClearNotifyRequest
}

// RestoreRequest writes records of a backup, in the order of cells.
type RestoreRequest struct {
	Records []RestoredCell
}

// RestoredCell is a committed value of a cell.
type RestoredCell struct {
	Cell     Cell
	StartTS  Timestamp
	CommitTS Timestamp
	Value    []byte
}

// RawCondition must hold for a RawWrite to happen: the cell has this value, or, with Absent, none.
type RawCondition struct {
	Cell   Cell
	Absent bool
	Value  []byte
}

// RawWriteRequest writes raw cells if all conditions hold. No transaction: meta's own
// records, and a benchmark's baseline.
type RawWriteRequest struct {
	Conditions []RawCondition
	Writes     []CellWriteRequest
}

// ReadResult is the answer to Get for one cell.
type ReadResult struct {
	Status   Status // OK, Locked, TooOld
	Found    bool
	Deleted  bool // the visible record is a delete; CommitTS and StartTS are set
	Value    []byte
	CommitTS Timestamp
	StartTS  Timestamp // of the transaction that wrote it
	Lock     *LockInfo // if Locked, else nil: most results have none, and are copied often
	Origin   Timestamp // of the cell's notification, if that was asked for and there is one
}

// ScanRequest reads cells of a span at the timestamp At. Columns empty means all data columns. Acks
// adds hidden ack columns.
type ScanRequest struct {
	Span     Span
	At       Timestamp
	Columns  []string
	Reverse  bool
	Acks     bool
	MaxRows  int // whole rows; 0 means no limit
	MaxBytes int // the page ends after the cell that reaches it; 0 means no limit
	// Resume: start after this cell (in scan order) instead of at the span's edge.
	Resume *Cell
	// Records shows write records with their start timestamps: of each cell the records in (Since,
	// At], the newest first and deletes too; if Since is 0 only the newest one up to At, unless it is
	// a delete. With ResumeTS the cell Resume is not done: its records below that commit timestamp are
	// still to come.
	Records  bool
	Since    Timestamp
	ResumeTS Timestamp
	// KeysOnly leaves the values out. It and WrittenBefore are ignored if Since is not 0.
	KeysOnly bool
	// WrittenBefore, if not 0, omits the cells whose visible record has a commit timestamp at or
	// above it; ScanResult.Oldest is the lowest commit timestamp omitted.
	WrittenBefore Timestamp
}

// ReadCell is one cell of a scan page, or one record of it.
type ReadCell struct {
	Cell     Cell
	Value    []byte
	CommitTS Timestamp
	StartTS  Timestamp // set only if ScanRequest.Records is, as is Deleted
	Deleted  bool
}

// ScanResult is a page. If Status is StatusLocked, Cells are valid and Lock is what stopped the
// scan: resolve it and resume after Last. Done means that the span or MaxRows is exhausted; else
// resume after Last or, if LastTS is not 0, within the cell Last, below the record at LastTS.
type ScanResult struct {
	Status Status
	Cells  []ReadCell
	Last   *Cell // last cell looked at, in full unless LastTS is not 0, also when it had nothing to show; nil: none
	Done   bool
	Lock   LockInfo
	LastTS Timestamp // commit timestamp of the last record shown if Last may have older ones; else 0
	Oldest Timestamp // see ScanRequest.WrittenBefore; 0: no cell was left out
}

// Bounds of what is shown of a row at once.
const (
	// MaxHistory is the maximum number of entries shown of one group. An answer may contain one
	// more, which means that there are more.
	MaxHistory = 4096
	// HistoryBytes is the approximate maximum number of bytes of values shown, not counting the
	// first entry of each group.
	HistoryBytes = 4 << 20
)

// HistoryEntry is one entry of a row in any group: what `percolator history` shows.
type HistoryEntry struct {
	Group  Group
	Cell   Cell
	TS     Timestamp
	Write  *Write
	Lock   *Lock
	Notify *Notify
	Intent *Intent
	Value  []byte
}
