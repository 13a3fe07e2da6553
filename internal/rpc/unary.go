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

// This file holds how a Client makes its calls other than the operations on tablets: each is
// bounded, repeated while the node is overloaded, and turns the client to
// another address when the node does not answer. It runs on the callers' goroutines.

// unary is a Client as the connection of generated clients.
type unary struct{ c *Client }

// Invoke implements grpc.ClientConnInterface. Its errors are those of the node's Transport.
func (u unary) Invoke(ctx context.Context, method string, req, resp any,
	opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, u.c.bound(method))
	defer cancel()
	l := u.c.link()
	err := l.invoke(ctx, method, req, resp, opts...)
	var refusal *txn.ServerError
	// While the node is overloaded, ever less often.
	for wait := time.Duration(0); errors.As(err, &refusal) && refusal.RetryAfter > 0; {
		wait = min(max(2*wait, refusal.RetryAfter), maxCallPause)
		if txn.Sleep(ctx, wait/2+rand.N(wait)) != nil {
			return err
		}
		err = l.invoke(ctx, method, req, resp, opts...)
	}
	// This call fails all the same; the coordinator's next one goes to another address.
	if errors.Is(err, txn.ErrUnavailable) ||
		(errors.As(err, &refusal) && isUnreachable(&pb.Error{Code: refusal.Code})) {
		u.c.failover(l)
	}
	return err
}

// NewStream implements grpc.ClientConnInterface: links open the only streams that there are.
func (unary) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "percolator: not a unary call")
}

// maxCallPause bounds the pause, before jitter, until a call is made again that was
// refused for overload.
const maxCallPause = time.Second

// profileTimeout is what the longest CPU profile takes.
const profileTimeout = time.Minute

// bound returns how long a call of the method may take, with the attempts that follow it.
func (c *Client) bound(method string) time.Duration {
	switch method {
	case pb.Percolator_Locate_FullMethodName, pb.Percolator_Tables_FullMethodName,
		pb.Percolator_GetCatalogue_FullMethodName:
		if len(c.links) > 1 { // a transaction may have to ask these first
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
