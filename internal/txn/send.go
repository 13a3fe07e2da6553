package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Whether an operation that was not answered has been done is the question on which
// correctness hangs here: one that was surely not done may be given up or sent again, one
// that may have been done must be sent again (if it is idempotent) or settled (if it
// decides a transaction). Every answer and error is translated into one of six verdicts,
// in one place.

// verdict is what one attempt to have an operation done has led to.
type verdict uint8

const (
	answered    verdict = iota // a result
	wrongTablet                // surely not done; the map has been healed: group anew
	askLater                   // surely not done; try again after a while
	busy                       // surely not done; the server asks for less, the caller decides
	refused                    // surely not done; permanent
	unknown                    // done or not, now or later
)

// try sends the operation once. err is nil only if the verdict is answered.
func (c *Client) try(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, verdict, error) {
	// The epoch says what the sender believes about the tablet's range: a tablet that
	// knows better refuses.
	req.TabletId, req.Epoch = d.TabletId, d.Epoch
	// A tablet may drop what nobody waits for any more.
	if deadline, ok := ctx.Deadline(); ok {
		req.DeadlineMs = max(1, time.Until(deadline).Milliseconds())
	}
	resp, err := c.transport.Send(ctx, d, req)
	if err != nil {
		if errors.Is(err, ErrNotSent) {
			return nil, askLater, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, unknown, fmt.Errorf("%w: reply lost: %w", ErrUnavailable, err)
	}
	if resp.Error == nil {
		// Status alone is answered whatever the sender believes of the range.
		if now := resp.GetStatus().GetTablet(); now != nil && now.Epoch > d.Epoch {
			c.stats.wrongTablet.Add(1)
			c.tablets.heal(d, []*pb.TabletDescriptor{now})
			return nil, wrongTablet, fmt.Errorf("%w: the tablet has changed", ErrUnavailable)
		}
		return resp, answered, nil
	}
	v, err := judge(resp.Error)
	switch {
	case v == wrongTablet:
		c.stats.wrongTablet.Add(1)
		c.tablets.heal(d, resp.Error.Descriptors)
	case resp.Error.Code == pb.Error_CODE_NO_TABLE:
		c.tables.forget()
	}
	return nil, v, err
}

// fresh is another message with the same operation: a message that has been sent is not
// changed any more.
func fresh(req *pb.TabletRequest) *pb.TabletRequest { return &pb.TabletRequest{Op: req.Op} }

// judge translates a tablet's refusal.
func judge(e *pb.Error) (verdict, error) {
	wrap := func(kind error) error { return fmt.Errorf("%w: %s", kind, e.Message) }
	switch e.Code {
	case pb.Error_CODE_WRONG_TABLET:
		return wrongTablet, wrap(ErrUnavailable)
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_UNAVAILABLE:
		return askLater, wrap(ErrUnavailable)
	case pb.Error_CODE_OVERLOADED:
		after := time.Duration(e.RetryAfterMs) * time.Millisecond
		return busy, &OverloadedError{RetryAfter: after, Message: e.Message}
	case pb.Error_CODE_DISK_FULL:
		if e.RetryAfterMs > 0 { // a node with room may lead the tablet soon
			return askLater, wrap(ErrDiskFull)
		}
		return busy, wrap(ErrDiskFull) // may last: the caller is told, and only what must end (commits, rollbacks) waits
	case pb.Error_CODE_INVALID, pb.Error_CODE_EXISTS, pb.Error_CODE_FUTURE:
		return refused, wrap(ErrInvalid)
	case pb.Error_CODE_TOO_LARGE:
		return refused, wrap(ErrTooLarge)
	case pb.Error_CODE_NO_TABLE:
		return refused, wrap(errTableGone)
	case pb.Error_CODE_PERMISSION:
		return refused, wrap(ErrPermission)
	default: // UNKNOWN, INTERNAL and what this version does not know
		return unknown, wrap(ErrUnavailable)
	}
}

// adminError translates an error of the Transport's administrative methods.
func adminError(err error) error {
	var refusal *ServerError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	_, err = judge(&pb.Error{Code: refusal.Code, Message: refusal.Message})
	return err
}

// permanent reports whether asking again can't help.
func permanent(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrNoTable) || errors.Is(err, ErrPermission)
}

// call has an operation done that may be sent any number of times, at the tablet that
// holds p: it tries until there is an answer, a permanent refusal, the end of ctx or
// OperationTimeout. A patient call waits while the tablet is busy too.
func (c *Client) call(ctx context.Context, p wire.Position, req *pb.TabletRequest, patient bool) (*pb.TabletResponse, error) {
	resp, _, err := c.callTablet(ctx, p, req, patient)
	return resp, err
}

// callTablet is call that also says which tablet answered.
func (c *Client) callTablet(
	ctx context.Context, p wire.Position, req *pb.TabletRequest, patient bool,
) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	var wait patience
	for {
		d, err := c.locate(ctx, p)
		if err != nil {
			return nil, nil, err
		}
		resp, v, err := c.try(ctx, d, req)
		if v == answered {
			return resp, d, nil
		}
		if v == refused || (v == busy && !patient) {
			return nil, nil, err
		}
		if err := wait.again(ctx, c, v, err); err != nil {
			return nil, nil, err
		}
		req = fresh(req)
	}
}

// mutate is a patient call whose answer is a mutation's result.
func (c *Client) mutate(ctx context.Context, p wire.Position, req *pb.TabletRequest) (*pb.MutationResult, error) {
	resp, err := c.call(ctx, p, req, true)
	if err != nil {
		return nil, err
	}
	if resp.GetMutation() == nil {
		return nil, fmt.Errorf("%w: the tablet answered something else", ErrUnavailable)
	}
	return resp.GetMutation(), nil
}

// Send has one idempotent operation done at the tablet that holds the position, for
// scanners and tools, and says which tablet that was. The response has no Error: that
// comes back as an error of this package.
func (c *Client) Send(ctx context.Context, p wire.Position, req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	return c.callTablet(ctx, p, fresh(req), false)
}
