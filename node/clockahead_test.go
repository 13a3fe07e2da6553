package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// TestClockAheadDoesNotLead: a node whose clock is an hour ahead is made leader of meta, and
// another node takes over. No timestamp granted meanwhile is more than a minute in the future.
func TestClockAheadDoesNotLead(t *testing.T) {
	t.Parallel()
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
		awaitTrue(ctx, t, "meta is led by another", func() bool {
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			ts, err := handle.Client(r.nodes[0].DB()).Timestamp(attempt)
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

// TestAheadNodeIsNotChosen: a request to make a node with such a clock lead meta is refused with a
// reason; placement knows the clock although that node has never led.
func TestAheadNodeIsNotChosen(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := newRig(t, 1, func(_ int, c *node.Config) {
		c.Placement = node.Placement{
			Busy: 20 * time.Millisecond, Interval: 100 * time.Millisecond, Rest: time.Second,
		}
		c.Splits.Off = true
	})
	r.ahead = map[int]time.Duration{2: time.Hour}
	r.add()
	r.add()
	r.placed(ctx, 2, 3, 0, 1, 2)
	order := &pb.MoveTabletRequest{TabletId: cluster.MetaTablet, ToNode: r.id(2), Leader: true}
	if _, err := handle.Client(r.nodes[0].DB()).Admin().MoveTablet(ctx, order); err != nil {
		t.Fatal(err)
	}
	r.until(ctx, "placement says that the clock is ahead", func() bool {
		for _, n := range r.nodes {
			if strings.Contains(strings.Join(n.Status().Placement.GetBlocked(), " "),
				"are too far ahead") {
				return true
			}
		}
		return false
	})
	if s := r.status(ctx, cluster.MetaTablet); s.GetNodeId() == r.id(2) {
		t.Error("the node whose clock is ahead leads meta")
	}
}
