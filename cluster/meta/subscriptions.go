package meta

import (
	"context"
	"math"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Positions of subscriptions to changes (docs/adr/0072). They are leases on history that belong to
// no process, like those of backups, in the same record.

// Limits of subscriptions, in all and of one certificate's name, and of their names in bytes.
const (
	maxSubscriptions     = 256
	maxSubscriptionsEach = 64
	maxSubscriptionName  = 64
)

// Subscription creates, advances, deletes or returns the position of a subscription, or lists all.
// now is a new oracle timestamp. The response's bound is that of HoldHistory: changes after a
// position below it may be lost.
func (h *History) Subscription(ctx context.Context, now mvcc.Timestamp,
	req *pb.SubscriptionRequest) (*pb.HoldHistoryResponse, error) {
	out := &pb.HoldHistoryResponse{KnowsSubscriptions: true}
	if len(req.Name) > maxSubscriptionName {
		return nil, refuse(pb.Error_CODE_INVALID, "a subscription's name has 1 to %d bytes, not %d",
			maxSubscriptionName, len(req.Name))
	}
	if req.Advance > uint64(now) {
		return nil, refuse(pb.Error_CODE_FUTURE, "position %d is above all timestamps of the oracle", req.Advance)
	}
	if !req.Create && !req.Delete && req.Advance == 0 {
		collection, leases, err := h.Collection(ctx)
		if err != nil {
			return nil, err
		}
		out.Bound = collection.Target
		for _, l := range leases.Leases {
			if l.Subscription && (req.Name == "" || l.Holder == req.Name) {
				out.Subscriptions = append(out.Subscriptions, subscriptionPB(l))
			}
		}
		return out, nil
	}
	if req.Name == "" {
		return nil, refuse(pb.Error_CODE_INVALID, "a subscription needs a name")
	}
	err := h.changeLeases(ctx, func(leases *wire.Leases, bound uint64) error {
		out.Bound, out.Subscriptions = bound, nil
		l, err := changeSubscription(leases, req)
		if l != nil {
			out.Subscriptions = []*pb.Subscription{subscriptionPB(l)}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// changeSubscription changes the subscription's lease in place and returns it; nil if there is none
// afterwards.
func changeSubscription(leases *wire.Leases, req *pb.SubscriptionRequest) (*wire.Lease, error) {
	all, own, at := 0, 0, -1
	for i, l := range leases.Leases {
		switch {
		case !l.Subscription:
			continue
		case l.Holder == req.Name:
			at = i
		case l.By == req.By:
			own++
		}
		all++
	}
	if at < 0 {
		switch {
		case req.Delete:
			return nil, nil
		case !req.Create:
			return nil, refuse(pb.Error_CODE_INVALID, "there is no subscription %q", req.Name)
		case all >= maxSubscriptions:
			return nil, refuse(pb.Error_CODE_OVERLOADED, "there are %d subscriptions, the maximum: delete some", all)
		case own >= maxSubscriptionsEach:
			return nil, refuse(pb.Error_CODE_OVERLOADED, "%q has %d subscriptions, the maximum for one "+
				"certificate's name: delete some", req.By, own)
		}
		l := &wire.Lease{
			Holder: req.Name, By: req.By, Oldest: req.Advance, Expires: math.MaxUint64, Subscription: true,
		}
		leases.Leases = append(leases.Leases, l)
		return l, nil
	}
	l := leases.Leases[at]
	if l.By != req.By && !req.Any && (req.Delete || req.Advance > l.Oldest) {
		return nil, refuse(pb.Error_CODE_PERMISSION, "subscription %q belongs to %q", req.Name, l.By)
	}
	if req.Delete {
		leases.Leases = slices.Delete(leases.Leases, at, at+1)
		return nil, nil
	}
	l.Oldest = max(l.Oldest, req.Advance)
	return l, nil
}

func subscriptionPB(l *wire.Lease) *pb.Subscription {
	return &pb.Subscription{Name: l.Holder, Position: l.Oldest, By: l.By}
}
