package txn

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors that users see; package percolator re-exports them with their documentation.
var (
	ErrConflict       = errors.New("percolator: conflict with another transaction")
	ErrLocked         = errors.New("percolator: locked by a live transaction")
	ErrCommitUnknown  = errors.New("percolator: outcome of the commit is unknown")
	ErrSnapshotTooOld = errors.New("percolator: snapshot is older than the history kept: read a newer one, close snapshots sooner, or let the node keep more history")
	ErrNoTable        = errors.New("percolator: no such table")
	ErrTooLarge       = errors.New("percolator: over a limit")
	ErrInvalid        = errors.New("percolator: invalid argument")
	ErrOverloaded     = errors.New("percolator: overloaded")
	ErrUnavailable    = errors.New("percolator: unavailable")
	ErrNotifyOnly     = errors.New("percolator: wrong kind of column")
	ErrManagedTx      = errors.New("percolator: the framework commits this transaction")
	ErrTxDone         = errors.New("percolator: transaction has ended")
	ErrClosed         = errors.New("percolator: closed")
	ErrPermission     = errors.New("percolator: permission denied")
)

// ErrDiskFull is the ErrUnavailable of a node that takes no writes for want of disk
// space. Surely not committed.
var ErrDiskFull = fmt.Errorf("%w: too little disk space", ErrUnavailable)

// errTableGone means that a tablet does not know a table whose id was cached. The next
// run looks the name up again.
var errTableGone = fmt.Errorf("%w any more", ErrNoTable)

// LimitError says which limit was exceeded. It wraps ErrTooLarge.
type LimitError struct {
	Limit string // "row", "column", "value", "split key", "transaction"
	Size  int    // bytes
	Max   int    // bytes
}

// Error names the limit and both sizes.
func (e *LimitError) Error() string {
	return fmt.Sprintf("percolator: %s of %d bytes is over the limit of %d", e.Limit, e.Size, e.Max)
}

// Unwrap is ErrTooLarge.
func (e *LimitError) Unwrap() error { return ErrTooLarge }

// OverloadedError carries the server's hint when to try again. It wraps ErrOverloaded.
type OverloadedError struct {
	RetryAfter time.Duration
	Message    string
}

// Error is the server's message.
func (e *OverloadedError) Error() string { return ErrOverloaded.Error() + ": " + e.Message }

// Unwrap is ErrOverloaded.
func (e *OverloadedError) Unwrap() error { return ErrOverloaded }

// Invalid formats an error that wraps ErrInvalid.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// notCommitted says in the text what every error of a commit has to say. Conflicts say it
// by themselves.
func notCommitted(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrLocked) ||
		errors.Is(err, ErrCommitUnknown) {
		return err
	}
	return fmt.Errorf("percolator: not committed: %w", Plain(err))
}

// Plain returns err with a text that does not say "percolator: " at every level: it is for
// what is wrapped by an error that begins so.
func Plain(err error) error { return &plainError{err} }

type plainError struct{ err error }

// Error is the text without the prefixes.
func (e *plainError) Error() string { return strings.ReplaceAll(e.err.Error(), "percolator: ", "") }

// Unwrap is the error as it was.
func (e *plainError) Unwrap() error { return e.err }
