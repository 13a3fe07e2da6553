package percolator

import "github.com/percolator-go/percolator/internal/txn"

// The errors of this package. Test for them with errors.Is.
var (
	// ErrConflict reports that another transaction has changed a cell that this one writes.
	// The transaction is not committed; run it again.
	ErrConflict = txn.ErrConflict
	// ErrLocked reports that a live transaction holds a lock on a cell. The transaction is not
	// committed; run it again later.
	ErrLocked = txn.ErrLocked
	// ErrCommitUnknown reports that the outcome of a commit could not be determined: the
	// transaction may or may not be committed. Transact does not retry it.
	ErrCommitUnknown = txn.ErrCommitUnknown
	// ErrSnapshotTooOld reports a timestamp below the retained history.
	ErrSnapshotTooOld = txn.ErrSnapshotTooOld
	// ErrNoTable reports that the table does not exist.
	ErrNoTable = txn.ErrNoTable
	// ErrTooLarge reports that a row, column, value or batch exceeds its limit. The error is
	// a *LimitError.
	ErrTooLarge = txn.ErrTooLarge
	// ErrInvalid reports an invalid argument. Retrying cannot succeed.
	ErrInvalid = txn.ErrInvalid
	// ErrOverloaded reports a full queue. Transact retries.
	ErrOverloaded = txn.ErrOverloaded
	// ErrUnavailable reports that no node served the request in time.
	ErrUnavailable = txn.ErrUnavailable
	// ErrDiskFull is the ErrUnavailable of a node that refuses writes for lack of disk
	// space; it still serves reads. The transaction is not committed. Free some space and
	// run it again. If a node with space can lead the tablet instead, the operation is
	// retried there until its deadline before this error is returned.
	ErrDiskFull = txn.ErrDiskFull
	// ErrNotifyOnly reports a write to a weak column, or a notification of a column that is
	// not weak.
	ErrNotifyOnly = txn.ErrNotifyOnly
	// ErrManagedTx reports a call of Commit or Rollback inside Transact or an observer, which
	// end the transaction themselves.
	ErrManagedTx = txn.ErrManagedTx
	// ErrTxDone reports that the transaction has ended.
	ErrTxDone = txn.ErrTxDone
	// ErrClosed reports that the DB, Loader or Snapshot is closed.
	ErrClosed = txn.ErrClosed
	// ErrPermission reports that the client's role or grants do not allow the operation.
	ErrPermission = txn.ErrPermission
)

// LimitError names the exceeded limit and wraps ErrTooLarge. Its fields are
//
//	Limit string // "row", "column", "value", "split key" or "transaction"
//	Size  int    // bytes
//	Max   int    // bytes
type LimitError = txn.LimitError
