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

// Sender carries an operation to a tablet by id, and tries again, until ctx ends, what
// was surely not done. An operation that may be repeated is also tried again after a lost
// answer; for any other the error then wraps ErrUnknown. Calls run on their callers'
// goroutines.
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
				// Both: why it ended, and what was in the way until then.
				return nil, fmt.Errorf("%w (last attempt: %w)", ended, err)
			}
		}
	}
}

// senderPause is the longest pause between two attempts: an election takes about a
// second, and its end should be noticed soon.
const senderPause = 100 * time.Millisecond

var (
	errAgain = errors.New("try again")
	// ErrUnknown: whether the operation was done, or will be, is not known.
	ErrUnknown = errors.New("route: the answer was lost")
)

// attempt is one try of a Sender. Its error wraps errAgain if another may follow.
func (c *Carrier) attempt(ctx context.Context, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if deadline, ok := ctx.Deadline(); ok && req.DeadlineMs == 0 {
		// Another message for each attempt: what is late is dropped at the latest when
		// this attempt is given up.
		left := max(1, min(time.Until(deadline), attemptTimeout).Milliseconds())
		req = &pb.TabletRequest{TabletId: tablet, Epoch: req.Epoch, DeadlineMs: left, Op: req.Op}
	}
	r, err := c.Send(ctx, &pb.TabletDescriptor{TabletId: tablet}, req)
	lost := err != nil && !errors.Is(err, txn.ErrNotSent)
	code := r.GetError().GetCode()
	switch {
	case err == nil && r.GetError() == nil:
		return r, nil
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	// It may have been done, or be done yet.
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
