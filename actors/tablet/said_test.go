package tablet

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestTickerStandsStill: while no replica is awake no timer wakes the process; the first one that
// wakes up is ticked in time.
func TestTickerStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewTicker(nil, 0)
		defer k.Close()
		var looks atomic.Int64
		k.StopWhile(func() bool {
			looks.Add(1)
			return false
		})
		b, _ := k.attach(1, nil)
		b.due.Store(true) // overdue: nothing is sent
		during := func(d time.Duration, least, most int64) {
			t.Helper()
			before := looks.Load()
			<-time.After(d)
			synctest.Wait()
			if n := looks.Load() - before; n < least || n > most {
				t.Errorf("%d ticks in %v, not %d to %d", n, d, least, most)
			}
		}
		for range 3 {
			during(time.Minute, 0, 2) // after a tick without an awake replica it stops
			k.keep(1, b, true)
			during(time.Second, 19, 21)
			k.keep(1, b, false)
			k.keep(1, b, true) // at once
			during(time.Second, 19, 21)
			k.keep(1, b, false)
		}
	})
}

// TestQuiescentStatusIsKept: the last answered status of a quiescent replica is kept until it
// changes.
func TestQuiescentStatusIsKept(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	ask := &pb.TabletRequest{
		Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{MeasureAbove: 1 << 30}},
	}
	g.at(lead, groupTablet, ask)
	if s := g.nodes[lead].ticker.LastStatus(groupTablet); s != nil {
		t.Errorf("kept of a replica that is awake: %v", s)
	}
	g.rest(1, 2, 3)
	for node, m := range g.nodes {
		if s := m.ticker.LastStatus(groupTablet); s != nil {
			t.Errorf("nobody has asked node %d: %v", node, s)
		}
		said := g.at(node, groupTablet, ask).GetStatus()
		if s := m.ticker.LastStatus(groupTablet); !proto.Equal(s, said) || !s.Quiescent ||
			s.Leader != (node == lead) {
			t.Errorf("kept of node %d: %v; it has said %v", node, s, said)
		}
	}
	g.at(lead, groupTablet, getOf(g.take(1), "a"))
	if s := g.nodes[lead].ticker.LastStatus(groupTablet); s != nil {
		t.Errorf("kept after a read: %v", s)
	}
	if s := g.nodes[lead].ticker.LastStatus(groupTablet + 1000); s != nil {
		t.Errorf("of a tablet that is not there: %v", s)
	}
}
