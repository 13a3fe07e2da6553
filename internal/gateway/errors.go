package gateway

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
)

// Errors of sessions and idempotency keys. All other errors are those of package percolator.
var (
	errSessionEnded     = txn.NewError("the session has ended, or its node has restarted")
	errSessionElsewhere = txn.NewError("the session belongs to another node")
	errSessionBusy      = txn.NewError("another call of the session is running")
	errPositionLost     = txn.NewError("the changes after the position are no longer kept")
	errKeyReused        = txn.NewError("the idempotency key was used for another request")
	errUnauthenticated  = txn.NewError("not authenticated")
)

// failures maps errors to codes, in the order in which they are looked for: an error may wrap several.
var failures = []struct {
	err    error
	code   connect.Code
	reason gw.Failure_Reason
	remedy string
}{
	{percolator.ErrCommitUnknown, connect.CodeUnknown, gw.Failure_REASON_COMMIT_UNKNOWN,
		"repeat the request unchanged if it has an idempotency key; otherwise read whether it has committed"},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded, gw.Failure_REASON_DEADLINE,
		"repeat the request with a longer deadline"},
	{context.Canceled, connect.CodeCanceled, gw.Failure_REASON_CANCELED, ""},
	{errSessionEnded, connect.CodeFailedPrecondition, gw.Failure_REASON_SESSION_ENDED,
		"begin again; call at least once during the lease"},
	{errSessionElsewhere, connect.CodeFailedPrecondition, gw.Failure_REASON_SESSION_ELSEWHERE,
		"send the calls of a session to the address that Begin has returned"},
	{errSessionBusy, connect.CodeFailedPrecondition, gw.Failure_REASON_SESSION_BUSY,
		"wait for the other call of the session"},
	{errKeyReused, connect.CodeInvalidArgument, gw.Failure_REASON_KEY_REUSED,
		"use a new random key for each intended change, and repeat a request unchanged"},
	{errUnauthenticated, connect.CodeUnauthenticated, gw.Failure_REASON_UNAUTHENTICATED,
		"use a client certificate that the cluster's authority has signed, or a token, that is not revoked"},
	{percolator.ErrConflict, connect.CodeAborted, gw.Failure_REASON_CONFLICT, "run the transaction again"},
	{percolator.ErrLocked, connect.CodeAborted, gw.Failure_REASON_LOCKED, "run the transaction again later"},
	{errPositionLost, connect.CodeOutOfRange, gw.Failure_REASON_POSITION_LOST,
		"drop the subscriber, if there is one, and watch with initial"},
	{percolator.ErrSnapshotTooOld, connect.CodeOutOfRange, gw.Failure_REASON_SNAPSHOT_TOO_OLD,
		"read at a newer timestamp, or hold a snapshot by Begin with readOnly"},
	{percolator.ErrNoTable, connect.CodeNotFound, gw.Failure_REASON_NO_TABLE, "create the table"},
	{percolator.ErrTooLarge, connect.CodeInvalidArgument, gw.Failure_REASON_TOO_LARGE,
		"divide the request, or ask for less"},
	{percolator.ErrNotifyOnly, connect.CodeFailedPrecondition, gw.Failure_REASON_NOTIFY_ONLY,
		"notify weak columns, and write others"},
	{percolator.ErrPermission, connect.CodePermissionDenied, gw.Failure_REASON_PERMISSION,
		"use a certificate or token with the role, or ask an operator for a grant"},
	{percolator.ErrInvalid, connect.CodeInvalidArgument, gw.Failure_REASON_INVALID, "correct the request"},
	{percolator.ErrDiskFull, connect.CodeUnavailable, gw.Failure_REASON_DISK_FULL, "free disk space on the nodes"},
	{percolator.ErrOverloaded, connect.CodeResourceExhausted, gw.Failure_REASON_OVERLOADED,
		"repeat the request after a pause"},
	{percolator.ErrClosed, connect.CodeUnavailable, gw.Failure_REASON_STARTING, "use another node"},
	{percolator.ErrTxDone, connect.CodeFailedPrecondition, gw.Failure_REASON_SESSION_ENDED, "begin again"},
	{percolator.ErrUnavailable, connect.CodeUnavailable, gw.Failure_REASON_UNAVAILABLE,
		"repeat the request, or use another node"},
}

// failure returns the error of the API for an error of a handler.
func failure(err error) *connect.Error {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e
	}
	err = txn.MarkRefusal(err)
	code, detail := connect.CodeInternal, &gw.Failure{Reason: gw.Failure_REASON_INTERNAL}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			code, detail.Reason, detail.Remedy = f.code, f.reason, f.remedy
			break
		}
	}
	detail.MaybeCommitted = errors.Is(err, percolator.ErrCommitUnknown)
	detail.RetryAfterMs = uint32(retryAfter(err).Milliseconds())
	out := connect.NewError(code, errors.New(coded.Text(err)))
	if d, err := connect.NewErrorDetail(detail); err == nil {
		out.AddDetail(d)
	}
	return out
}

// retryAfter returns the pause after which the request may succeed, 0 if that is unknown.
func retryAfter(err error) time.Duration {
	if busy, ok := errors.AsType[*txn.OverloadedError](err); ok {
		return busy.RetryAfter
	}
	if refusal, ok := errors.AsType[*txn.ServerError](err); ok {
		return refusal.RetryAfter
	}
	return 0
}
