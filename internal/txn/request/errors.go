package request

import (
	"fmt"
	"time"

	"github.com/percolator-go/percolator/internal/coded"
)

// pkg begins the text of each error that users see, once.
const pkg = "percolator"

// NewError returns a code of this package.
func NewError(message string) error { return coded.New(pkg, message) }

// Errorf is fmt.Errorf for errors that users see: "percolator: " begins the text, and none of the
// errors in it.
func Errorf(format string, args ...any) error { return coded.Errorf(pkg, format, args...) }

// The errors that users see; package percolator re-exports them with their documentation.
var (
	ErrConflict       = NewError("conflict with another transaction")
	ErrLocked         = NewError("locked by a live transaction")
	ErrCommitUnknown  = NewError("outcome of the commit is unknown")
	ErrSnapshotTooOld = NewError("snapshot is older than the history kept: read a newer one, close snapshots sooner, or let the node keep more history")
	ErrNoTable        = NewError("no such table")
	ErrTooLarge       = NewError("over a limit")
	ErrInvalid        = NewError("invalid argument")
	ErrOverloaded     = NewError("overloaded")
	ErrUnavailable    = NewError("unavailable")
	ErrNotifyOnly     = NewError("wrong kind of column")
	ErrManagedTx      = NewError("the framework commits this transaction")
	ErrTxDone         = NewError("transaction has ended")
	ErrClosed         = NewError("closed")
	ErrPermission     = NewError("permission denied")
)

// ErrDiskFull is the ErrUnavailable of a node that refuses writes for lack of disk space, or of
// inodes, file descriptors or memory maps; the text names which. Unless the error also wraps
// ErrCommitUnknown, the transaction did not commit.
var ErrDiskFull = Errorf("%w: the node lacks disk space or another resource for files",
	ErrUnavailable)

// ErrRestoring marks the ErrUnavailable of a table whose restore has not ended.
var ErrRestoring = NewError("the table is being restored")

// ErrStarting marks the ErrUnavailable of a node that does not serve yet, such as one that waits to
// join a cluster.
var ErrStarting = NewError("the node does not serve yet")

// ErrTableGone means that a tablet refused the cached id of a table. The next run looks the
// name up again.
var ErrTableGone = Errorf("%w any more", ErrNoTable)

// LimitError reports the limit that was exceeded. It wraps ErrTooLarge.
type LimitError struct {
	Limit string // "row", "column", "value", "split key", "transaction", "message"
	Size  int    // bytes
	Max   int    // bytes
}

// Error returns a text with the limit and both sizes.
func (e *LimitError) Error() string {
	return pkg + ": " + e.Text()
}

// Text returns the message without the package's name.
func (e *LimitError) Text() string {
	return fmt.Sprintf("%s of %d bytes is over the limit of %d", e.Limit, e.Size, e.Max)
}

// Unwrap returns ErrTooLarge.
func (e *LimitError) Unwrap() error { return ErrTooLarge }

// As lets errors.As find percolator.LimitError, which has the same fields.
func (e *LimitError) As(target any) bool { return publicLimit != nil && publicLimit(e, target) }

// publicLimit stores e in a target of type **percolator.LimitError, and returns false for other
// targets; nil means package percolator is not linked.
var publicLimit func(e *LimitError, target any) bool

// SetPublicLimit sets the function behind LimitError.As, for package percolator's initialization.
// It returns true, so that it can initialize a variable.
func SetPublicLimit(as func(e *LimitError, target any) bool) bool {
	publicLimit = as
	return true
}

// OverloadedError carries the server's retry delay. It wraps ErrOverloaded.
type OverloadedError struct {
	RetryAfter time.Duration
	Message    string
}

// Error returns the server's message.
func (e *OverloadedError) Error() string { return pkg + ": " + e.Text() }

// Text returns the server's message, without the package's name.
func (e *OverloadedError) Text() string { return coded.Text(ErrOverloaded) + ": " + e.Message }

// Unwrap returns ErrOverloaded.
func (e *OverloadedError) Unwrap() error { return ErrOverloaded }

// Invalid formats an error that wraps ErrInvalid.
func Invalid(format string, args ...any) error {
	return Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
