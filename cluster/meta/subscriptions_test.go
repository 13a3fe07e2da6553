package meta

import (
	"fmt"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestSubscriptions: a position only rises, belongs to its creator, is no lease that a holder of its
// name replaces, and their number is limited, in all and for one creator.
func TestSubscriptions(t *testing.T) {
	ctx := t.Context()
	_, m := newWorld(t)
	const now = mvcc.Timestamp(1 << 40)
	ask := func(req *pb.SubscriptionRequest) (uint64, error) {
		r, err := m.History.Subscription(ctx, now, req)
		if err != nil || len(r.Subscriptions) == 0 {
			return 0, err
		}
		return r.Subscriptions[0].Position, nil
	}
	for i, step := range []struct {
		req    *pb.SubscriptionRequest
		at     uint64
		failed bool
	}{
		{req: &pb.SubscriptionRequest{Name: "s", Advance: 5}, failed: true},
		{req: &pb.SubscriptionRequest{Name: "s"}},
		{req: &pb.SubscriptionRequest{Name: "s", Create: true, By: "ann"}},
		{req: &pb.SubscriptionRequest{Name: "s", Create: true, By: "ann", Advance: 5}, at: 5},
		{req: &pb.SubscriptionRequest{Name: "s", Create: true, By: "ann", Advance: 4}, at: 5},
		{req: &pb.SubscriptionRequest{Name: "s", Create: true, By: "eve"}, at: 5},
		{req: &pb.SubscriptionRequest{Name: "s", Create: true, By: "eve", Advance: 6}, failed: true},
		{req: &pb.SubscriptionRequest{Name: "s", Delete: true, By: "eve"}, failed: true},
		{req: &pb.SubscriptionRequest{Name: "s", Advance: 7, By: "eve", Any: true}, at: 7},
		{req: &pb.SubscriptionRequest{Name: "s", Advance: 1 << 50, By: "ann"}, failed: true},
		{req: &pb.SubscriptionRequest{Create: true}, failed: true},
		{req: &pb.SubscriptionRequest{Create: true, Name: fmt.Sprintf("%065d", 1)}, failed: true},
		{req: &pb.SubscriptionRequest{Name: "s"}, at: 7},
		{req: &pb.SubscriptionRequest{Name: "s", Delete: true, By: "ann"}},
		{req: &pb.SubscriptionRequest{Name: "s"}},
	} {
		if at, err := ask(step.req); at != step.at || (err != nil) != step.failed {
			t.Errorf("step %d: position %d, %v; want %d, failed %t", i, at, err, step.at, step.failed)
		}
		hold := &pb.HoldHistoryRequest{Holder: "s", Oldest: 3, TtlMs: 1000}
		if _, err := m.History.HoldHistory(ctx, now, hold); err != nil {
			t.Fatal(err)
		}
	}
	made := 0
	for i := range maxSubscriptions + 1 {
		if i%(maxSubscriptionsEach+1) == maxSubscriptionsEach {
			if _, err := ask(&pb.SubscriptionRequest{Name: fmt.Sprint(i), Create: true, By: fmt.Sprint("by", i/(maxSubscriptionsEach+1))}); err == nil {
				t.Errorf("a client has %d subscriptions", maxSubscriptionsEach+1)
			}
			continue
		}
		_, err := ask(&pb.SubscriptionRequest{Name: fmt.Sprint(i), Create: true, By: fmt.Sprint("by", i/(maxSubscriptionsEach+1))})
		if made++; (err != nil) != (made > maxSubscriptions) {
			t.Errorf("subscription %d: %v", made, err)
		}
	}
	for i := made; i < maxSubscriptions; i++ {
		if _, err := ask(&pb.SubscriptionRequest{Name: fmt.Sprint("more", i), Create: true}); err != nil {
			t.Errorf("subscription %d: %v", i, err)
		}
	}
	if _, err := ask(&pb.SubscriptionRequest{Name: "last", Create: true, By: "z"}); err == nil {
		t.Errorf("there are more than %d subscriptions", maxSubscriptions)
	}
}
