package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
)

// Translation of errors between a Transport and gRPC in both directions. A remote client gets
// the same error as the node's own process.

// grpcCodes maps our codes to gRPC's, for foreign clients. The details contain our code.
var grpcCodes = map[pb.Error_Code]codes.Code{
	pb.Error_CODE_INVALID:    codes.InvalidArgument,
	pb.Error_CODE_TOO_LARGE:  codes.InvalidArgument,
	pb.Error_CODE_FUTURE:     codes.InvalidArgument,
	pb.Error_CODE_NO_TABLE:   codes.NotFound,
	pb.Error_CODE_EXISTS:     codes.AlreadyExists,
	pb.Error_CODE_PERMISSION: codes.PermissionDenied,
	pb.Error_CODE_OVERLOADED: codes.ResourceExhausted,
	pb.Error_CODE_UNKNOWN:    codes.Unknown,
	pb.Error_CODE_INTERNAL:   codes.Internal,
}

// errorOf returns an error of the protocol.
func errorOf(code pb.Error_Code, format string, args ...any) *pb.Error {
	return &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// serverError returns the error of the protocol as one of the Transport.
func serverError(e *pb.Error) *txn.ServerError {
	return &txn.ServerError{
		Code: e.Code, Message: e.Message, RetryAfter: time.Duration(e.RetryAfterMs) * time.Millisecond,
	}
}

// toStatus returns the gRPC status of an error of the Transport.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	e := &pb.Error{Code: pb.Error_CODE_UNAVAILABLE, Message: coded.Text(err)}
	var refusal *txn.ServerError
	switch {
	case errors.As(err, &refusal):
		e.Code, e.Message, e.RetryAfterMs = refusal.Code, refusal.Message,
			uint32(refusal.RetryAfter.Milliseconds())
	// The caller's context ended: gRPC has codes for that.
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	code, ok := grpcCodes[e.Code]
	if !ok {
		code = codes.Unavailable
	}
	// The details contain our complete error: several of our codes share one of gRPC's, and a status
	// has no field for the retry time.
	st, detailErr := status.New(code, e.Message).WithDetails(e)
	if detailErr != nil {
		return status.Error(code, e.Message)
	}
	return st.Err()
}

// startingReason is the reason in the google.rpc.ErrorInfo of a node that does not serve yet, and
// reasonDomain the domain of the reasons of this package.
const (
	startingReason = "STARTING"
	reasonDomain   = "percolator"
)

// Starting returns the status of a node that does not serve yet. Clients of builds that do not know
// its reason use its code, Unavailable.
func Starting(message string) error {
	st, err := status.New(codes.Unavailable, message).WithDetails(&errdetails.ErrorInfo{
		Reason: startingReason, Domain: reasonDomain,
	})
	if err != nil {
		return status.Error(codes.Unavailable, message)
	}
	return st.Err()
}

// statusUnary applies toStatus to the errors of the services for clients.
func statusUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if public(info.FullMethod) {
		err = toStatus(err)
	}
	return resp, err
}

// fromStatus is the inverse of toStatus. An error without our details comes from gRPC itself,
// and becomes txn.ErrUnavailable unless its code means that a retry cannot succeed.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if e, ok := d.(*pb.Error); ok {
			return serverError(e)
		}
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == startingReason &&
			info.GetDomain() == reasonDomain {
			return coded.Mark(txn.Errorf("%w: %s", txn.ErrUnavailable, st.Message()), txn.ErrStarting)
		}
	}
	// An error without details comes from gRPC, or from a server that is not a node.
	switch st.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return &txn.ServerError{Code: pb.Error_CODE_PERMISSION, Message: st.Message()}
	case codes.Unimplemented:
		return coded.Mark(&txn.ServerError{
			Code: pb.Error_CODE_INVALID, Message: "the node does not know this request: " +
				st.Message(),
		}, ErrOtherService)
	}
	return txn.Errorf("%w: %s", txn.ErrUnavailable, st.Message())
}
