package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn/request"
)

// The errors of requests, which package request documents.
var (
	ErrConflict       = request.ErrConflict
	ErrLocked         = request.ErrLocked
	ErrCommitUnknown  = request.ErrCommitUnknown
	ErrSnapshotTooOld = request.ErrSnapshotTooOld
	ErrNoTable        = request.ErrNoTable
	ErrTooLarge       = request.ErrTooLarge
	ErrInvalid        = request.ErrInvalid
	ErrOverloaded     = request.ErrOverloaded
	ErrUnavailable    = request.ErrUnavailable
	ErrNotifyOnly     = request.ErrNotifyOnly
	ErrManagedTx      = request.ErrManagedTx
	ErrTxDone         = request.ErrTxDone
	ErrClosed         = request.ErrClosed
	ErrPermission     = request.ErrPermission
	ErrDiskFull       = request.ErrDiskFull
	ErrRestoring      = request.ErrRestoring
	ErrStarting       = request.ErrStarting
	ErrNotSent        = request.ErrNotSent
)

// The types of package request that callers of this package implement or receive.
type (
	// Transport carries requests to the cluster.
	Transport = request.Transport
	// AtOnce is implemented by a Transport in the oracle's process.
	AtOnce = request.AtOnce
	// ServerError is a node's refusal of an administrative method of Transport.
	ServerError = request.ServerError
	// LimitError reports the limit that was exceeded.
	LimitError = request.LimitError
	// OverloadedError carries the server's retry delay.
	OverloadedError = request.OverloadedError
)

// NewError is request.NewError.
func NewError(message string) error { return request.NewError(message) }

// Errorf is request.Errorf.
func Errorf(format string, args ...any) error { return request.Errorf(format, args...) }

// Invalid is request.Invalid.
func Invalid(format string, args ...any) error { return request.Invalid(format, args...) }

// MarkRefusal is request.MarkRefusal.
func MarkRefusal(err error) error { return request.MarkRefusal(err) }

// SetPublicLimit is request.SetPublicLimit.
func SetPublicLimit(as func(e *LimitError, target any) bool) bool { return request.SetPublicLimit(as) }

// Sleep is request.Sleep.
func Sleep(ctx context.Context, d time.Duration) error { return request.Sleep(ctx, d) }

// RetryError reports that Client.Run has used up Options.Runs. It wraps ErrConflict and the error
// of the last run.
type RetryError struct {
	Retries int // runs after the first
	Err     error
}

// Error returns the number of retries and the error of the last run.
func (e *RetryError) Error() string { return "percolator: " + e.Text() }

// Text returns the message without the package's name.
func (e *RetryError) Text() string {
	return fmt.Sprintf("not committed after %d retries: %s", e.Retries, coded.Text(e.Err))
}

// Unwrap returns ErrConflict and the error of the last run.
func (e *RetryError) Unwrap() []error { return []error{ErrConflict, e.Err} }

// notCommitted adds "not committed" to an error's text, except to that of a conflict or a live
// lock, which imply it, and of ErrCommitUnknown.
func notCommitted(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrLocked) ||
		errors.Is(err, ErrCommitUnknown) {
		return err
	}
	return Errorf("not committed: %w", err)
}
