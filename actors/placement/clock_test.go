package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestMetaKeepsOffAheadClocks: neither a drain nor a requested move transfers meta's leadership to
// a node whose clock is ahead; that of other tablets may go there. A drain without another target
// reports it and continues once the clock is set.
func TestMetaKeepsOffAheadClocks(t *testing.T) {
	w := newWorld(t, 4)
	for range 4 {
		w.add(1, 2, 3)
	}
	p := newTest(t, w)
	w.turns(p)
	meta := w.tablets[0]
	voters, _ := meta.on()
	w.ahead = slices.DeleteFunc(slices.Clone(voters), func(n uint64) bool {
		return n == meta.leader
	})
	w.orders = []*pb.MoveTabletRequest{{TabletId: 1, ToNode: w.ahead[0], Leader: true}}
	w.turns(p)
	if why := fmt.Sprint(p.status.snapshot().Blocked); !strings.Contains(why, "clocks of nodes") {
		t.Errorf("an order to lead meta waits for no clock: %s", why)
	}
	w.orders = nil
	drains := meta.leader
	w.ahead = slices.DeleteFunc([]uint64{1, 2, 3, 4}, func(n uint64) bool { return n == drains })
	w.records[drains].State = pb.NodeState_NODE_STATE_DRAINING
	w.turns(p)
	_, leaders := w.spread()
	if why := p.status.snapshot().BlockedNodes[drains]; leaders[drains] != 1 ||
		!strings.Contains(why, "clocks of nodes") {
		t.Errorf("node %d drains and leads %d tablets: %q", drains, leaders[drains], why)
	}
	w.ahead = w.ahead[1:]
	w.turns(p)
	if w.records[drains].State != pb.NodeState_NODE_STATE_DRAINED ||
		slices.Contains(w.ahead, meta.leader) {
		t.Errorf("node %d is %v, meta is led by node %d", drains, w.records[drains].State,
			meta.leader)
	}
}

// TestCalmNeedsNoTime: placement requests timestamps, each of which may be a write to meta, only
// for absent nodes.
func TestCalmNeedsNoTime(t *testing.T) {
	w := newWorld(t, 4)
	w.add(1, 2, 3)
	p := newTest(t, w)
	w.turns(p)
	for _, away := range []bool{false, true, false} {
		w.silent[4] = away
		w.turns(p) // its absence is recorded
		before := w.stamps
		for range 10 {
			p.turn(t.Context(), start)
		}
		if asked := w.stamps - before; away != (asked == 10) || !away && asked != 0 {
			t.Errorf("away=%v: %d timestamps in 10 turns", away, asked)
		}
		if since := w.records[4].GoneSince; away != (since != 0) {
			t.Errorf("away=%v: recorded since %d", away, since)
		}
	}
}
