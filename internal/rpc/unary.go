package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// A Client's calls other than operations on tablets. Each has a timeout, is repeated while the
// node is overloaded, and switches the client to another address if the node does not answer.
// They run on the callers' goroutines.

// unary adapts a Client to the connection interface of generated clients.
type unary struct{ c *Client }

// Invoke implements grpc.ClientConnInterface. Its errors are those of the node's Transport.
func (u unary) Invoke(ctx context.Context, method string, req, resp any,
	opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, u.c.timeout(method))
	defer cancel()
	l := u.c.link()
	err := l.invoke(ctx, method, req, resp, opts...)
	var refusal *txn.ServerError
	// Repeat with growing pauses while the node is overloaded.
	for wait := time.Duration(0); errors.As(err, &refusal) && refusal.RetryAfter > 0; {
		wait = min(max(2*wait, refusal.RetryAfter), maxCallPause)
		if txn.Sleep(ctx, wait/2+rand.N(wait)) != nil {
			return err
		}
		err = l.invoke(ctx, method, req, resp, opts...)
	}
	// This call still fails; the coordinator's next one uses another address.
	if errors.Is(err, txn.ErrUnavailable) ||
		(errors.As(err, &refusal) && isUnreachable(&pb.Error{Code: refusal.Code})) {
		u.c.failover(l)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface. It fails: only links open streams.
func (unary) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "not a unary call")
}

// maxCallPause is the maximum pause, before jitter, before an overloaded call is repeated.
const maxCallPause = time.Second

// profileTimeout is the duration of the longest CPU profile.
const profileTimeout = time.Minute

// timeout returns the timeout of a call of the method, including its retries.
func (c *Client) timeout(method string) time.Duration {
	switch method {
	case pb.Percolator_Locate_FullMethodName, pb.Percolator_Tables_FullMethodName,
		pb.Percolator_GetCatalogue_FullMethodName:
		if len(c.links) > 1 { // a short timeout, since transactions wait for these three
			return c.answerWithin
		}
	case pb.Admin_VerifyTablet_FullMethodName, pb.Admin_RestoreTable_FullMethodName,
		pb.Admin_MergeTablets_FullMethodName:
		return verifyTimeout
	case pb.Admin_DescribeProcess_FullMethodName:
		return unaryTimeout + profileTimeout
	}
	return unaryTimeout
}

// invoke makes one call.
func (l *link) invoke(ctx context.Context, method string, req, resp any,
	opts ...grpc.CallOption) error {
	return fromStatus(l.conn.Invoke(ctx, method, req, resp, opts...))
}
