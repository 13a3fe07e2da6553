package percolator

import "github.com/percolator-go/percolator/internal/txn"

// The errors of this package; errors.Is works on everything that is returned.
var (
	// ErrConflict: another transaction changed a cell that this one wrote. Surely not
	// committed; run it again.
	ErrConflict = txn.ErrConflict
	// ErrLocked: a cell is locked by a transaction that is still alive. Surely not
	// committed; run it again later.
	ErrLocked = txn.ErrLocked
	// ErrCommitUnknown: whether the transaction committed could not be found out. Nothing
	// runs it again by itself.
	ErrCommitUnknown = txn.ErrCommitUnknown
	// ErrSnapshotTooOld: the timestamp is below the history that is kept.
	ErrSnapshotTooOld = txn.ErrSnapshotTooOld
	// ErrNoTable: there is no table of that name.
	ErrNoTable = txn.ErrNoTable
	// ErrTooLarge: a row, column, value or batch is over its limit; the error is a *LimitError.
	ErrTooLarge = txn.ErrTooLarge
	// ErrInvalid: an argument makes no sense; permanent.
	ErrInvalid = txn.ErrInvalid
	// ErrOverloaded: a queue is full. Transact tries again by itself.
	ErrOverloaded = txn.ErrOverloaded
	// ErrUnavailable: nobody could serve the request for a while.
	ErrUnavailable = txn.ErrUnavailable
	// ErrDiskFull is the ErrUnavailable of a node that takes no writes for want of disk
	// space; reads go on. Surely not committed. Free some space, on the node's disk or in
	// the repository, and run it again. Where a node with room could lead the tablet
	// instead it is returned only after a wait, for as long as the operation is tried at
	// all.
	ErrDiskFull = txn.ErrDiskFull
	// ErrNotifyOnly: a weak column was written, or a column that is not weak was notified.
	ErrNotifyOnly = txn.ErrNotifyOnly
	// ErrManagedTx: Commit or Rollback inside Transact or an observer, whose framework does that.
	ErrManagedTx = txn.ErrManagedTx
	// ErrTxDone: the transaction has ended.
	ErrTxDone = txn.ErrTxDone
	// ErrClosed: the DB, Loader or Snapshot is closed.
	ErrClosed = txn.ErrClosed
	// ErrPermission: the node refuses this client.
	ErrPermission = txn.ErrPermission
)

// LimitError says which limit was exceeded, and by what. It wraps ErrTooLarge. Its fields are
//
//	Limit string // "row", "column", "value", "split key" or "transaction"
//	Size  int    // bytes
//	Max   int    // bytes
type LimitError = txn.LimitError
