package request

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Subscriptions returns the subscriptions to changes, and the timestamp from which on history is
// complete. With a name it returns at most that one.
func (m *Meta) Subscriptions(ctx context.Context, name string) (list []*pb.Subscription,
	bound mvcc.Timestamp, err error) {
	r, err := m.subscription(ctx, &pb.SubscriptionRequest{Name: name})
	return r.GetSubscriptions(), mvcc.Timestamp(r.GetBound()), err
}

// AdvanceSubscription creates the subscription if it does not exist, raises its position if that is
// lower than to, and returns the position then stored. History is held from that position on,
// within the policy's limit.
func (m *Meta) AdvanceSubscription(ctx context.Context, name string,
	to mvcc.Timestamp) (mvcc.Timestamp, error) {
	r, err := m.subscription(ctx, &pb.SubscriptionRequest{
		Name: name, Create: true, Advance: uint64(to), Any: true,
	})
	if err != nil {
		return 0, err
	}
	if len(r.Subscriptions) != 1 {
		return 0, Errorf("%w: the node answered without the subscription", ErrUnavailable)
	}
	return mvcc.Timestamp(r.Subscriptions[0].Position), nil
}

// DeleteSubscription deletes a subscription. It succeeds if there is none.
func (m *Meta) DeleteSubscription(ctx context.Context, name string) error {
	_, err := m.subscription(ctx, &pb.SubscriptionRequest{Name: name, Delete: true, Any: true})
	return err
}

// subscription sends a request. All these requests are idempotent.
func (m *Meta) subscription(ctx context.Context,
	req *pb.SubscriptionRequest) (*pb.HoldHistoryResponse, error) {
	r, err := retry(ctx, m, func() (*pb.HoldHistoryResponse, error) {
		return m.transport.HoldHistory(ctx, &pb.HoldHistoryRequest{Subscription: req})
	})
	if err == nil && !r.KnowsSubscriptions {
		return nil, Invalid("the node is of a release without subscriptions")
	}
	return r, err
}
