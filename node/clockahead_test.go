package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster"
)

// TestClockAheadDoesNotLead: the node whose clock is an hour ahead comes to lead meta. Timestamps go on from the others, and
// none is of the future.
func TestClockAheadDoesNotLead(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := three(ctx, t, 1, nil)
	r.stop(2)
	r.ahead = map[int]time.Duration{2: time.Hour}
	r.start(2)
	r.spread(ctx, 3)
	for range 2 {
		r.lead(ctx, cluster.MetaTablet, 2)
		first := true
		comesTrue(ctx, t, "meta is led by another", func() bool {
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			ts, err := r.nodes[0].DB().Client().Timestamp(attempt)
			if err != nil {
				t.Errorf("first %v: %v", first, err)
				return false
			}
			first = false
			if at := time.UnixMilli(ts.Millis()); time.Until(at) > time.Minute {
				t.Fatalf("a timestamp of %v from now", time.Until(at))
			}
			s := r.status(ctx, cluster.MetaTablet)
			return s != nil && s.NodeId != r.id(2)
		})
	}
}
