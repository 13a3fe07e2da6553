package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// TestLeadingStatus: placement's most frequent request returns each tablet's leader, and no other
// replica.
func TestLeadingStatus(t *testing.T) {
	const tablets = 12
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := newRig(t, 3, func(_ int, c *node.Config) {
		c.Placement = node.Placement{
			Busy: 20 * time.Millisecond, Interval: 200 * time.Millisecond, Rest: time.Second,
		}
		c.Splits.Off = true
	})
	db := r.nodes[0].DB()
	if err := workload.Prepare(ctx, db, tablets); err != nil {
		t.Fatal(err)
	}
	all, err := handle.Client(db).Transport().Locate(ctx, 0, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	r.placed(ctx, len(all), 3, 0, 1, 2)
	r.until(ctx, "each tablet's leader tells, and nobody else", func() bool {
		led, told := map[uint64]bool{}, 0
		for _, n := range r.nodes {
			s, err := n.LeadingStatus(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range s.Tablets {
				led[x.Tablet.TabletId], told = led[x.Tablet.TabletId] || x.Leader, told+1
			}
			if s.Placement == nil && n == r.nodes[0] &&
				r.layout().tablets[1].GetNodeId() == r.id(0) {
				t.Error("placement's status is left out, by which drains report what they wait for")
			}
		}
		ok := told == len(all)
		for _, d := range all {
			ok = ok && led[d.TabletId]
		}
		return ok
	})
}
