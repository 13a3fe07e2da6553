package percolator

import "github.com/percolator-go/percolator/internal/txn"

// The errors of this package. Test for them with errors.Is.
var (
	// ErrConflict reports that another transaction has changed a cell that this one writes,
	// locks or validates, or that another client has rolled this one back. The transaction is
	// not committed; run it again.
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
	// ErrTooLarge reports that a row, column, value, split key or transaction exceeds its limit.
	// The error is a *LimitError, unless a node refused the request.
	ErrTooLarge = txn.ErrTooLarge
	// ErrInvalid reports an invalid argument. Retrying cannot succeed.
	ErrInvalid = txn.ErrInvalid
	// ErrOverloaded reports a full queue of the client or of a node, or that the client exceeds its
	// rate (Policy.ClientRate). Transact retries.
	ErrOverloaded = txn.ErrOverloaded
	// ErrUnavailable reports that no node served the request in time. Operations on tablets are first
	// retried for up to 20 s.
	ErrUnavailable = txn.ErrUnavailable
	// ErrDiskFull is the ErrUnavailable of a node that refuses writes for lack of disk space, or of
	// inodes, file descriptors or memory maps, as the text says; it still serves reads.
	// Unless the error also wraps ErrCommitUnknown, the transaction is not committed: provide what
	// is lacking and run it again. If a node that accepts writes can lead the tablet instead, the
	// operation is retried there until its deadline before this error is returned.
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

// LimitError names the exceeded limit and wraps ErrTooLarge; errors.As finds it.
type LimitError struct {
	Limit string // "row", "column", "value", "split key" or "transaction"
	Size  int    // bytes
	Max   int    // bytes
}

// Error names the limit and both sizes.
func (e *LimitError) Error() string { return (*txn.LimitError)(e).Error() }

// Unwrap returns ErrTooLarge.
func (e *LimitError) Unwrap() error { return ErrTooLarge }

// RetryError reports that Transact has used up MaxRetries. The transaction is not committed. The
// error wraps ErrConflict, and the error of the last run, which may also be ErrLocked or
// ErrOverloaded.
type RetryError struct {
	Retries int   // runs after the first
	Err     error // of the last run
}

// Error returns the number of retries and the error of the last run.
func (e *RetryError) Error() string { return (*txn.RetryError)(e).Error() }

// Unwrap returns ErrConflict and the error of the last run.
func (e *RetryError) Unwrap() []error { return (*txn.RetryError)(e).Unwrap() }
