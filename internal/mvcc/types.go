package mvcc

import "iter"

// Timestamp is an oracle timestamp: 46 bits of milliseconds since the Unix epoch, then 18 bits of
// counter (§2.3). Zero means "none".
type Timestamp uint64

// LogicalBits is the width of a Timestamp's counter.
const LogicalBits = 18

// MaxTimestamp is the greatest timestamp. It is never issued.
const MaxTimestamp = Timestamp(1<<64 - 1)

// Millis returns the physical part: milliseconds since the Unix epoch.
func (t Timestamp) Millis() int64 { return int64(t >> LogicalBits) }

// TimestampAt returns the first timestamp of the given millisecond since the Unix epoch.
func TimestampAt(millis int64) Timestamp { return Timestamp(millis) << LogicalBits }

// TableID names a table inside the store. Ids are never reused. MetaTable is the cluster's own.
type TableID uint32

// MetaTable is the table of the meta tablet; user tables start at FirstUserTable.
const (
	MetaTable      TableID = 0
	FirstUserTable TableID = 16
)

// Class separates a user's columns from the framework's own in the same row (§2.4, Figure 5).
type Class uint8

// The classes of columns.
const (
	ClassData Class = 0 // a user's column: data or weak
	ClassAck  Class = 1 // ack_O of observer O; Column holds the observer's name
)

// Cell is the address of one cell. It is comparable and serves as a map key. Row and
// Column hold any bytes.
type Cell struct {
	Table  TableID
	Class  Class
	Row    string
	Column string
}

// IsAck reports whether the cell holds an acknowledgment.
func (c Cell) IsAck() bool { return c.Class == ClassAck }

// Kind is the kind of a write.
type Kind uint8

// The kinds of writes. KindLock is not a write: the cell does not change, but conflicts as if it
// were written.
const (
	KindPut    Kind = 1
	KindDelete Kind = 2
	KindLock   Kind = 3
)

// Write is a write record (§2.2, Figure 5 c:write): this cell changed at CommitTS, by the
// transaction that started at StartTS. A put's value is inline, or, when Long, in D at
// StartTS. In K it is a committed lock without a write, which changed nothing.
type Write struct {
	CommitTS Timestamp
	StartTS  Timestamp
	Kind     Kind
	Long     bool
	Value    []byte
}

// Worker is a process that coordinates transactions. A remote client has no Node.
type Worker struct {
	Node        uint64
	Incarnation uint64
}

// Lock is a prewritten, undecided write of one cell (§2.2, Figure 5 c:lock), or a reservation
// (Token).
type Lock struct {
	StartTS Timestamp
	Primary Cell
	Expiry  Timestamp // oracle time; only that of the primary's lock counts while there is one
	Worker  Worker
	Kind    Kind
	Long    bool // the value is in D at StartTS
	Value   []byte
	Origin  Timestamp // of the run whose lock it is (origin.go); 0: a user's transaction
	// MinCommitTS, of the locks of an asynchronous commit, is a lower bound of its commit timestamp;
	// 0: of any other commit. Secondaries, of its primary's lock, are its other cells.
	MinCommitTS Timestamp
	Secondaries []Cell
	// Token is not zero for a reservation: of a one-phase commit, or of the prewrite of an
	// asynchronous commit. Such a lock lives in the leader's memory only, is never encoded, and is
	// released by the tablet alone: nothing may resolve it, and readers and writers wait for it in
	// the tablet.
	Token uint64
	// CommitsAbove, of locks in a leader's memory, is a timestamp at or below which the transaction
	// certainly does not commit: one that the leader knew when it evaluated the prewrite, before the
	// client requested its commit timestamp. It is never encoded.
	CommitsAbove Timestamp
	// CommitTS is set on a reservation once the oracle has answered: readers below it
	// need not wait.
	CommitTS Timestamp
}

// LockInfo is a lock with its cell, as reported to a reader or writer that encountered it.
type LockInfo struct {
	Cell Cell
	Lock Lock // Value is left out
	// Intent: the entry is a weak intent, not a lock.
	Intent bool
}

// Notify is an entry of the notify column (§2.4): the cell changed at TS and its observer
// may have to run.
type Notify struct {
	TS       Timestamp
	Attempts uint32    // failed runs since TS; conflicts do not count
	ParkedTS Timestamp // not 0: when its runs were given up, until a replay or a newer write
	Replay   bool      // run once even if the ack is newer (back-fill)
	Error    string    // the last failure, cut to 1 KiB
	Origins  Origins   // the users' commits that caused the notification
}

// Intent is a weak notification that waits for its transaction's outcome.
type Intent struct {
	Primary Cell
	Expiry  Timestamp
	Worker  Worker
	Origin  Timestamp // as in Lock
}

// Group is a locality group: one of the kinds of keys in the state store (§2.1).
type Group byte

// The locality groups; see design section 3 for keys and values.
const (
	GroupWrite    Group = 'W' // newest write record of a cell
	GroupHistory  Group = 'H' // older write records, by descending commit timestamp
	GroupData     Group = 'D' // long values, by start timestamp
	GroupLock     Group = 'L'
	GroupRollback Group = 'R' // "the transaction StartTS is rolled back at this cell"
	GroupNotify   Group = 'N'
	GroupIntent   Group = 'I'
	GroupLocked   Group = 'K' // newest committed lock without a write of a cell
	GroupRaw      Group = 'M' // raw cells: meta's own records, and the benchmark's baseline
)

// Mutation is one effect of an evaluated operation: put or delete one entry of one group.
// Exactly the field that belongs to the group is set on a put, none in R; none on a delete.
type Mutation struct {
	Group  Group
	Cell   Cell
	TS     Timestamp // H: commit timestamp; D, R, I: start timestamp; otherwise 0
	Delete bool

	Write  *Write  // W, H, K
	Lock   *Lock   // L
	Notify *Notify // N
	Intent *Intent // I
	Value  []byte  // D, M
}

// Observed is a column's kind of observation, by the tablet's catalogue version.
type Observed uint8

// How a column is observed. A Weak column cannot be written; a Strong one gets an N entry
// with every write record.
const (
	NotObserved Observed = iota
	ObservedStrong
	ObservedWeak
)

// Observation describes the observers of a column and the location of their notifications. Each
// observer has separate notify entries (docs/adr/0065): one observer at the observed cells, each
// further one at its acknowledgment cells in the same rows.
type Observation struct {
	How Observed
	// Plain reports whether an observer has its notify entries at the observed cells. PlainOf names
	// it, retired or not, as long as the catalogue lists it; empty means unknown.
	Plain   bool
	PlainOf string
	// Own names the observers whose notify entries are at their acknowledgment cells. The
	// caller must not change it.
	Own []string
}

// Watch is an observer as its acknowledgments name it.
type Watch struct {
	Column string // the observed column, of the acknowledgment's table
	Own    bool   // the observer's notify entries are at its acknowledgment cells
}

// NotifyCell returns the cell of the observer's notify entry, from its acknowledgment cell.
func (w Watch) NotifyCell(ack Cell) Cell {
	if w.Own {
		return ack
	}
	return w.ObservedCell(ack)
}

// ObservedCell returns the observed cell, from the observer's acknowledgment cell.
func (w Watch) ObservedCell(ack Cell) Cell {
	return Cell{Table: ack.Table, Row: ack.Row, Column: w.Column}
}

// ObservedColumn names a column: an observed one, or, of ClassAck, the acknowledgments of the
// observer that Column names.
type ObservedColumn struct {
	Table  TableID
	Class  Class
	Column string
}

// ColumnOf returns the cell's column.
func ColumnOf(c Cell) ObservedColumn {
	return ObservedColumn{Table: c.Table, Class: c.Class, Column: c.Column}
}

// Cell returns the column's cell in the row.
func (c ObservedColumn) Cell(row string) Cell {
	return Cell{Table: c.Table, Class: c.Class, Row: row, Column: c.Column}
}

// Span is a range of rows of one table: Start ≤ row < End; HasEnd false means to the end
// of the table.
type Span struct {
	Table  TableID
	Start  string
	End    string
	HasEnd bool
}

// Contains reports whether the row lies in the span.
func (s Span) Contains(row string) bool { return row >= s.Start && (!s.HasEnd || row < s.End) }

// View is the input of the rules: one tablet's state at one moment. In a tablet it is an immutable
// view of the lock table, a Badger Txn, and (for mutations only) the effects of proposals in flight
// laid over both. Returned byte slices belong to the caller and do not change. An error is a
// storage fault and ends the operation.
type View interface {
	// Lock is the cell's lock, reservations included.
	Lock(c Cell) (Lock, bool)
	// Locks iterates the locks with rows in span, by cell, descending if reverse.
	Locks(s Span, reverse bool) iter.Seq2[Cell, Lock]
	// Newest is the cell's entry in W.
	Newest(c Cell) (Write, bool, error)
	// Older iterates the cell's entries in H with commit_ts ≤ atOrBelow, newest first.
	Older(c Cell, atOrBelow Timestamp) iter.Seq2[Write, error]
	// Data is the long value written at start.
	Data(c Cell, start Timestamp) ([]byte, bool, error)
	// PastLock is the cell's entry in K, if its commit_ts is from or later.
	PastLock(c Cell, from Timestamp) (Write, bool, error)
	// RolledBack reports whether the transaction start has a rollback record at the cell.
	RolledBack(c Cell, start Timestamp) (bool, error)
	// Notification is the cell's entry in N. The cell is the notify cell of an observer.
	Notification(c Cell) (Notify, bool, error)
	// Intent is the weak intent of transaction start on the cell.
	Intent(c Cell, start Timestamp) (Intent, bool, error)
	// Cells iterates W with rows in span, row order then (class, column) order,
	// descending rows if reverse (the columns of one row too).
	Cells(s Span, reverse bool) iter.Seq2[CellWrite, error]
	// Raw is a raw cell's value.
	Raw(c Cell) ([]byte, bool, error)
	// Observed looks the column up in the tablet's catalogue.
	Observed(t TableID, column string) Observation
	// AckOf looks the observer up, also if it is retired; ok is false for an unknown one.
	AckOf(t TableID, observer string) (w Watch, ok bool)
	// Bound: reads and prewrites below it are refused. Safepoint: records that no read at
	// or above it finds may be collected.
	Bound() Timestamp
	Safepoint() Timestamp
}

// CellWrite is a cell with one of its write records; Cells yields the newest.
type CellWrite struct {
	Cell  Cell
	Write Write
}

// RawCell is a raw cell (group M) with its value.
type RawCell struct {
	Cell  Cell
	Value []byte
}

// CellNotify is a cell with its notification.
type CellNotify struct {
	Cell   Cell
	Notify Notify
}

// CellIntent is a weak intent of the transaction StartTS on a cell.
type CellIntent struct {
	Cell    Cell
	StartTS Timestamp
	Intent  Intent
}
