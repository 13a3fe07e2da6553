package route

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Sender sends an operation to the tablet with the id. Until ctx ends it repeats attempts
// that had surely no effect. After a lost answer it repeats only an operation that allows
// it; for any other the error wraps ErrUnknown. If ctx ends during an attempt, the error is ctx's,
// and the operation may have been done. Calls run on their callers' goroutines.
type Sender func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse,
	error)

// Sender returns the carrier as a Sender.
func (c *Carrier) Sender() Sender {
	return func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (r *pb.TabletResponse,
		err error) {
		for wait := time.Millisecond; ; wait = min(2*wait, senderPause) {
			r, err = c.attempt(ctx, tablet, req)
			if !errors.Is(err, errAgain) {
				return r, err
			}
			if ended := txn.Sleep(ctx, wait/2+rand.N(wait)); ended != nil {
				// The error tells both why the attempts ended and why they failed.
				return nil, fmt.Errorf("%w (last attempt: %w)", ended, err)
			}
		}
	}
}

// senderPause is the greatest mean pause between two attempts; each pause is 0.5 to 1.5 times the
// mean. An election takes about a second, and its end should be noticed soon.
const senderPause = 100 * time.Millisecond

var (
	errAgain = errors.New("try again")
	// ErrUnknown reports that whether the operation was done, or will be, is not known.
	ErrUnknown = errors.New("route: the outcome is unknown")
)

// attempt is one try of a Sender. Its error wraps errAgain if another may follow.
func (c *Carrier) attempt(ctx context.Context, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if deadline, ok := ctx.Deadline(); ok && req.DeadlineMs == 0 {
		// Each attempt has its own deadline, so that a tablet drops a request that arrives
		// after the attempt has ended.
		left := max(1, min(time.Until(deadline), attemptTimeout).Milliseconds())
		req = &pb.TabletRequest{
			TabletId: tablet, Epoch: req.Epoch, DeadlineMs: left, Op: req.Op, Trace: req.Trace,
		}
	}
	r, err := c.Send(ctx, &pb.TabletDescriptor{TabletId: tablet}, req)
	lost := err != nil && !errors.Is(err, txn.ErrNotSent)
	code := r.GetError().GetCode()
	switch {
	case err == nil && r.GetError() == nil:
		return r, nil
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	// The operation may have been done, or may still be done.
	case lost || code == pb.Error_CODE_UNKNOWN || code == pb.Error_CODE_INTERNAL:
		if err == nil {
			err = errors.New(r.Error.Message)
		}
		if wire.OperationOf(req).Has(wire.Repeats) {
			return nil, fmt.Errorf("%w: %w", errAgain, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	switch e := r.Error; e.Code {
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_OVERLOADED, pb.Error_CODE_NOT_PROPOSED,
		pb.Error_CODE_UNAVAILABLE:
		return nil, fmt.Errorf("%w: %s", errAgain, e.Message)
	default:
		return nil, &txn.ServerError{Code: e.Code, Message: e.Message}
	}
}
